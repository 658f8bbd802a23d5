"""Quick tuning: verify and time the few candidates that are likely to be good, and nothing else.

They are winners and runners-up of the nearest problems and the families' starts, ordered by what they promise
(`autotune.estimate.fit`): a dozen builds in place of a hundred. A third of the places is for configurations that differ
from one of those in a size (`autotune.estimate.varied`), and whatever places the others leave.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from autotune.core.candidate import Candidate
from autotune.estimate.fit import Known, by_promise, known_starts
from autotune.estimate.varied import few_of_each, sizes_of, variations
from autotune.families.template import Template
from autotune.ops.registry import get_op
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.neighbours import known_nearby

MOST_BUILDS = 12

_STARTS = 6  # of each family
_BASES = 4  # candidates of other sizes that others are made of
_KNOWN = 7  # places for what is known, where there is more
_ALIKE = 2  # of one size, and made of one base
_HOPELESS = 1.4  # times the best promise


def likely(templates: Sequence[Template], families: Families, records: Records) -> tuple[Candidate, ...]:
    """The most promising candidates for a problem, best first, at most `MOST_BUILDS`."""
    exact = get_op(records.problem.op).exact_fields
    contenders = known_nearby(records, families, exact)
    by_name = {template.name: template for template in templates}
    for known in _starts(by_name, families, records):
        contenders.setdefault(known.candidate, known)
    asked = by_name, records.problem, records.identity.spec
    ranked = by_promise(contenders.values(), *asked)
    sizes = {expected.known: sizes_of(expected.known.candidate, by_name) for expected in ranked}
    hopeful = [e for e in few_of_each(ranked, sizes, _ALIKE) if e.ms <= _HOPELESS * ranked[0].ms]
    made = variations(few_of_each(ranked, sizes, 1)[:_BASES], *asked)
    better = [e for e in by_promise(made, *asked) if e.known.candidate not in contenders]
    varied = [e for e in few_of_each(better, made, _ALIKE) if families.has(e.known.candidate)]
    family = families[ranked[0].known.candidate.template]
    safe = [family.candidate(family.defaults)] if family.space.contains(family.defaults) else []
    old = [e.known.candidate for e in hopeful][: max(_KNOWN, MOST_BUILDS - len(varied) - 1)]
    new = [e.known.candidate for e in varied]
    rest = (e.known.candidate for e in (*ranked, *better))
    return tuple(islice(dict.fromkeys([*old, *safe, *new, *rest]), MOST_BUILDS))


def _starts(templates: Mapping[str, Template], families: Families, records: Records) -> list[Known]:
    """The first starts of each family, with their times where they are of this GPU."""
    found = []
    for family in families:
        template = templates[family.name]
        listed = [known for known, _ in known_starts(template, records.problem, records.identity.spec, _STARTS)]
        found += listed or [Known(family.candidate(family.space.starts()[0]))]
    return found
