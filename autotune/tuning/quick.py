"""Quick tuning: verify and time the few candidates that are likely to be good, and nothing else.

They are winners and runners-up of the nearest problems and the families' starts, ordered by what they promise
(`autotune.estimate.fit`): a dozen builds in place of a hundred.
"""

from collections.abc import Mapping, Sequence

from autotune.core.candidate import Candidate
from autotune.estimate.fit import Known, by_promise, known_starts
from autotune.families.template import Template
from autotune.ops.registry import get_op
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.neighbours import known_nearby

MOST_BUILDS = 12

_STARTS = 6  # of each family


def likely(templates: Sequence[Template], families: Families, records: Records) -> tuple[Candidate, ...]:
    """The most promising candidates for a problem, best first, at most `MOST_BUILDS`."""
    exact = get_op(records.problem.op).exact_fields
    contenders = known_nearby(records, families, exact)
    by_name = {template.name: template for template in templates}
    for known in _starts(by_name, families, records):
        contenders.setdefault(known.candidate, known)
    ranked = by_promise(contenders.values(), by_name, records.problem, records.identity.spec)
    return tuple(expected.known.candidate for expected in ranked[:MOST_BUILDS])


def _starts(templates: Mapping[str, Template], families: Families, records: Records) -> list[Known]:
    """The first starts of each family, with their times where they are of this GPU."""
    found = []
    for family in families:
        template = templates[family.name]
        listed = [known for known, _ in known_starts(template, records.problem, records.identity.spec, _STARTS)]
        found += listed or [Known(family.candidate(family.space.starts()[0]))]
    return found
