"""What a row of each list has: names of columns, in order, and where their values come from."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from autotune.store.records import DeviceSummary, ProblemSummary, SearchSummary, StoredMeasurement

Of = TypeVar("Of")
Columns = Mapping[str, Callable[[Of], Any]]

SPREAD = frozenset(("outcomes", "config"))
"""Names whose values are counts or parameters by name, in CSV a column each: which there are, the rows alone tell."""

PROBLEM: "Columns[ProblemSummary]" = {
    "problem": lambda s: s.problem,
    "device": lambda s: s.device,
    "trials": lambda s: s.trials,
    "ok": lambda s: s.outcomes.get("ok", 0),
    "outcomes": lambda s: dict(s.outcomes),
    "measured ms": lambda s: s.best_ms.get("measured"),
    "estimated ms": lambda s: s.best_ms.get("estimated"),
}


@dataclass(frozen=True)
class Beside:
    """A search beside others: the best time that any of them found for the same problem and device."""

    summary: "SearchSummary"
    best_ms: float | None

    @property
    def times_best(self) -> float | None:
        ms = self.summary.best_ms
        return None if not ms or not self.best_ms else round(ms / self.best_ms, 3)

    def setting(self, name: str, default: object = "") -> Any:
        return self.summary.search.settings.get(name, default)


def beside_each_other(found: "Sequence[SearchSummary]") -> Iterable[Beside]:
    """Each with the best time that any has found for its problem and device, of its kind of time."""

    def about(s: "SearchSummary") -> object:
        return s.search.problem, s.search.device, s.kind

    best: dict[object, float] = {}
    for s in found:
        if s.best_ms is not None:
            best[about(s)] = min(s.best_ms, best.get(about(s), s.best_ms))
    return [Beside(s, best.get(about(s))) for s in found]


SEARCH: Columns[Beside] = {
    "id": lambda one: one.summary.search.id,
    "problem": lambda one: one.summary.search.problem,
    "device": lambda one: one.summary.search.device,
    "sampler": lambda one: one.setting("sampler"),
    "seed": lambda one: one.setting("seed"),
    "state": lambda one: one.summary.search.state,
    "runs on": lambda one: one.summary.search.unheard(time.time()),
    "trials": lambda one: one.summary.trials,
    "ok": lambda one: one.summary.outcomes.get("ok", 0),
    "outcomes": lambda one: dict(one.summary.outcomes),
    "best ms": lambda one: one.summary.best_ms,
    "kind": lambda one: one.summary.kind,
    "at trial": lambda one: one.summary.best_at,
    "x best": lambda one: one.times_best,
    "begun": lambda one: one.summary.search.created_at.isoformat(timespec="seconds"),
    "templates": lambda one: ",".join(one.setting("templates", ())),
    "part": lambda one: one.setting("part"),
    "objective": lambda one: one.setting("objective", "time"),
    "max_error": lambda one: one.setting("max_error", None),
}

DEVICE: "Columns[DeviceSummary]" = {
    "device": lambda d: d.name,
    "kind": lambda d: d.kind,
    "title": lambda d: d.title,
    "arch": lambda d: d.arch,
    "problems": lambda d: d.problems,
    "trials": lambda d: d.trials,
    "winners": lambda d: d.winners,
}

TRIAL: "Columns[StoredMeasurement]" = {
    "id": lambda record: record.id or None,
    "origin": lambda record: "own" if record.id else "shipped",
    "date": lambda record: record.created_at.isoformat(timespec="seconds"),
    "search": lambda record: record.search_id,
    "source_hash": lambda record: record.source_hash,
    "device": lambda record: record.device,
    "problem": lambda record: record.problem,
    "template": lambda record: record.candidate.template,
    "config": lambda record: dict(record.candidate.config),
    "stage": lambda record: record.stage,
    "outcome": lambda record: record.measurement.outcome.value,
    "ms": lambda record: record.measurement.ms,
    "kind": lambda record: None if record.measurement.timing is None else record.measurement.timing.kind,
    "energy_mj": lambda record: record.measurement.mj,
    "power_w": lambda record: None if record.measurement.energy is None else record.measurement.energy.power_w,
    "message": lambda record: record.measurement.message,
}

OF: Mapping[str, Columns[Any]] = {"problems": PROBLEM, "searches": SEARCH, "devices": DEVICE, "trials": TRIAL}
"""By the name of the list; winners are rows of trials."""
