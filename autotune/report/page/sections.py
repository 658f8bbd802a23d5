"""What a page is about: each problem on each device, with all its trials, searches and winner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.core.errors import UsageError
from autotune.core.measurement import TimingKind
from autotune.core.model_version import model_of
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.families.op_ref import load_own
from autotune.families.template import Template, builtin_templates, load_template, names_file
from autotune.gpus.identity import DeviceIdentity
from autotune.ops.op import Op
from autotune.ops.registry import get_op
from autotune.store.records import StoredMeasurement, StoredSearch
from autotune.store.store import Store
from autotune.store.transfer import Identities

MOST = 12
"""Sections of a page, unless told otherwise: those with the newest trials."""


@dataclass(frozen=True)
class Section:
    """A problem on a device. `trials` in the order in which they were made; `older`: estimates of former models, which
    are not among them, since they do not compare. `op` is None where nothing is known of it here.
    """

    problem: Problem
    identity: DeviceIdentity
    kind: TimingKind
    trials: tuple[StoredMeasurement, ...]
    searches: tuple[StoredSearch, ...]
    winner: StoredMeasurement | None
    op: Op | None
    older: int = 0

    @property
    def estimated(self) -> bool:
        return self.kind == "estimated"

    @property
    def timed(self) -> list[StoredMeasurement]:
        """The right trials whose times compare."""
        return [record for record in self.trials if counts(record)]

    @property
    def families(self) -> list[str]:
        """Their names, that with the fastest trial first, those without any last."""
        best: dict[str, float] = {}
        for record in self.trials:
            name, ms = record.candidate.template, record.measurement.ms if counts(record) else None
            best[name] = min(best.get(name, float("inf")), float("inf") if ms is None else ms)
        return sorted(best, key=lambda name: (best[name], name))


def counts(record: StoredMeasurement) -> bool:
    """Whether a record is right, and has a time that compares with others."""
    timing = record.measurement.timing
    return record.measurement.outcome == Outcome.OK and timing is not None and timing.counted


class Families:
    """Where families are looked for: those shipped, and one file of a user's own."""

    def __init__(self, template: str | None = None, reference: str | None = None) -> None:
        """`template`: a name, or a file.

        Raises:
            TemplateError: the file is wrong.
        """
        self.own: Template | None = None
        self.only = template
        if template is not None and names_file(template):
            own = _load(Path(template), reference)
            self.own, self.only = own, own.name

    def find(self, record: StoredMeasurement) -> Template | None:
        """The family of a record as it was when it was measured."""
        own = [self.own] if self.own is not None and self.own.op == record.problem.op else []
        for template in (*own, *builtin_templates(record.problem.op)):
            if (template.name, template.hash) == (record.candidate.template, record.candidate.template_hash):
                return template
        return None


def _load(path: Path, reference: str | None) -> Template:
    """A user's family, its op registered where it has a reference."""
    if reference is None and not load_template(path).front.reference:
        return load_template(path)
    return load_own(path, reference)


def gather(
    store: Store, about: Callable[[Problem, str], bool], families: Families, most: int = MOST
) -> tuple[list[Section], int]:
    """Sections, that with the newest trial first, and how many more there are.

    Raises:
        StoreError: the database cannot be read, or holds what no trial can have found.
    """
    identities, searches = Identities(store), [summary.search for summary in store.searches()]
    found = []
    for summary in store.problems():
        if about(summary.problem, summary.device):
            records = [
                record for record in store.measurements(summary.problem, summary.device)
                if families.only in {None, record.candidate.template}
            ]  # fmt: skip
            if records:
                found.append(_section(store, identities[summary.device], records, searches))
    found.sort(key=lambda section: -section.trials[-1].id)
    return found[:most], max(0, len(found) - most)


def _section(
    store: Store, identity: DeviceIdentity, records: Sequence[StoredMeasurement], searches: Sequence[StoredSearch]
) -> Section:
    problem, device = records[0].problem, records[0].device
    timings = [record.measurement.timing for record in records]
    kind: TimingKind = next(
        (t.kind for t in timings if t is not None), "estimated" if identity.estimates else "measured"
    )
    kept = _of_newest_model(records) if kind == "estimated" else list(records)
    winner = store.winner(problem, device, kind)
    best = None if winner is None else winner.record
    if best is None or best.candidate.template not in {record.candidate.template for record in records}:
        timed = [record for record in kept if counts(record)]
        best = min(timed, key=lambda record: record.measurement.ms or 0.0, default=None)
    about = tuple(search for search in searches if (search.problem, search.device) == (problem, device))
    return Section(problem, identity, kind, tuple(kept), about, best, _op(problem), len(records) - len(kept))


def _of_newest_model(records: Sequence[StoredMeasurement]) -> list[StoredMeasurement]:
    drivers = {record.driver for record in records if counts(record)}
    newest = max(drivers, key=model_of, default=None)
    return [record for record in records if not counts(record) or record.driver == newest]


def _op(problem: Problem) -> Op | None:
    try:
        return get_op(problem.op)
    except UsageError:  # of a template that is not at hand
        return None
