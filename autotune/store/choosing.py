"""The best record of some families alone, whoever the winner is: a database keeps one winner a problem and device."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from autotune.core.arithmetic import FULL
from autotune.core.candidate import Candidate
from autotune.core.model_version import model_of
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.families.template import builtin_templates
from autotune.gpus.identity import parse_device
from autotune.store.records import StoredMeasurement
from autotune.store.store import Store


def best_of(
    store: Store, problem: Problem, device: str, versions: Mapping[str, str], *, spills: bool = True
) -> StoredMeasurement | None:
    """The fastest record of a problem on a device by these families (name to version); None where there is none.

    Where any was a finalist, the fastest of these, by its newest final: the best of many trials is a lucky one. Of
    estimates only the newest model's count. Without `spills`, records of kernels whose registers spill are passed over.
    """
    newest: dict[Candidate, StoredMeasurement] = {}
    for record in store.measurements(problem, device, outcome=Outcome.OK, stage=None):
        candidate = record.candidate
        if versions.get(candidate.template) == candidate.template_hash and (spills or not record.measurement.spills):
            known = newest.get(candidate)
            if known is None or record.stage == "final" or known.stage == "trial":
                newest[candidate] = record
    finalists = [record for record in newest.values() if record.stage == "final"]
    return min(finalists or newest.values(), key=_rank, default=None)


def best_by(
    store: Store, problem: Problem, device: str, cost: Callable[[tuple[float, float]], float],
    versions: Mapping[str, str] | None = None,
) -> StoredMeasurement | None:  # fmt: skip
    """The record with the least `cost` of its milliseconds and millijoules a call, among those that tell their energy.

    None where none does. Where any was a finalist, one of these, by its newest final. `versions`: as for `best_of`;
    None: of any family.
    """
    newest: dict[Candidate, tuple[float, StoredMeasurement]] = {}
    for record in store.measurements(problem, device, outcome=Outcome.OK, stage=None):
        candidate, ms, mj = record.candidate, record.measurement.ms, record.measurement.mj
        if ms is None or mj is None:
            continue
        if versions is not None and versions.get(candidate.template) != candidate.template_hash:
            continue
        known = newest.get(candidate)
        if known is None or record.stage == "final" or known[1].stage == "trial":
            newest[candidate] = cost((ms, mj)), record
    finalists = [pair for pair in newest.values() if pair[1].stage == "final"]
    best = min(finalists or newest.values(), key=lambda pair: pair[0], default=None)
    return None if best is None else best[1]


def full_versions(op: str) -> dict[str, str]:
    """The version of each family of an op that comes with the package and multiplies in full precision, by name."""
    return {template.name: template.hash for template in builtin_templates(op) if template.front.arithmetic == FULL}


def of_full_precision(store: Store, winners: Iterable[StoredMeasurement]) -> Iterator[StoredMeasurement]:
    """In place of each winner whose family does not multiply in full precision the best record that does, if any."""
    for record in winners:
        others = {t.name for t in builtin_templates(record.problem.op) if t.front.arithmetic != FULL}
        if record.candidate.template not in others:
            yield record
        elif found := best_of(store, record.problem, record.device, full_versions(record.problem.op)):
            yield found


def _rank(record: StoredMeasurement) -> tuple[int, float, int]:
    model = model_of(record.driver) if parse_device(record.device).kind == "cpu" else 0
    return -model, record.measurement.ms or 0.0, record.id
