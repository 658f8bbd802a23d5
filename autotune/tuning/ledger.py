"""What is known about each candidate so far, whoever found it."""

import math
from collections import Counter
from dataclasses import dataclass, replace

from autotune.core.candidate import Candidate
from autotune.core.measurement import Energy, Measurement
from autotune.core.outcome import Outcome
from autotune.tuning.objective import Figures

_TIMED = (Outcome.OK, Outcome.PRUNED)


@dataclass(frozen=True)
class Entry:
    """A candidate's measurement, the hash of its source and the record's id in the database."""

    candidate: Candidate
    measurement: Measurement
    source_hash: str
    record_id: int

    @property
    def ms(self) -> float:
        """Time of an `ok` entry; infinite for every other outcome, so that none of them can ever be the best."""
        ms = self.measurement.ms if self.measurement.outcome is Outcome.OK else None
        return ms if ms is not None and is_time(ms) else math.inf

    @property
    def figures(self) -> Figures | None:
        """Time and energy of an `ok` entry whose energy is known."""
        mj = self.measurement.mj
        return None if mj is None or math.isinf(self.ms) else (self.ms, mj)

    @property
    def counted(self) -> bool:
        """Whether its time compares with others': not where it is an estimate of work that could not be counted."""
        return self.measurement.timing is None or self.measurement.timing.counted

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Orders entries: those that were not counted come last."""
        return not self.counted, self.ms, self.record_id

    @property
    def value(self) -> float | None:
        """log(ms) for the sampler, also of a candidate given up as too slow; None where no time compares."""
        ms = self.measurement.ms
        compares = self.measurement.outcome in _TIMED and self.counted
        return math.log(ms) if compares and ms is not None and is_time(ms) else None


class Ledger:
    """Entries by candidate, counts by outcome, and the best so far."""

    def __init__(self) -> None:
        self._entries: dict[Candidate, Entry] = {}
        self.outcomes: Counter[Outcome] = Counter()
        self.trials = 0
        self.best: Entry | None = None

    def add(self, entry: Entry) -> bool:
        """Enter a candidate's measurement. The first one stands, unless it was in doubt; whether this one does now."""
        first = self._entries.get(entry.candidate)
        if first is not None:
            if not first.measurement.doubtful or first.record_id == entry.record_id:
                return False
            self._uncount(first)
            self.trials -= costs(first.measurement)
        self._entries[entry.candidate] = entry
        self.outcomes[entry.measurement.outcome] += 1
        self.trials += costs(entry.measurement)
        if entry.ms < math.inf and (self.best is None or entry.rank[:2] < self.best.rank[:2]):
            self.best = entry
        return True

    def add_energy(self, candidate: Candidate, energy: Energy) -> None:
        """What energy a candidate takes, measured after its trial."""
        entry = self._entries[candidate]
        self._entries[candidate] = replace(entry, measurement=replace(entry.measurement, energy=energy))

    def reject(self, entry: Entry) -> None:
        """A candidate's measurement turned out to be another; `best` stays what it was during the search."""
        self._uncount(self._entries[entry.candidate])
        self.outcomes[entry.measurement.outcome] += 1
        self._entries[entry.candidate] = entry

    def _uncount(self, entry: Entry) -> None:
        self.outcomes -= Counter({entry.measurement.outcome: 1})  # leaves out what then counts 0

    def doubtful(self) -> list[Candidate]:
        """Candidates that are tried once more before they are given up."""
        return [entry.candidate for entry in self._entries.values() if entry.measurement.doubtful]

    def get(self, candidate: Candidate) -> Entry | None:
        """What is known about a candidate."""
        return self._entries.get(candidate)

    def trial_entries(self) -> list[Entry]:
        """The entries that count as trials, in the order in which they were made."""
        return [entry for entry in self._entries.values() if costs(entry.measurement)]

    def ranked(self, *, spills: bool = True) -> list[Entry]:
        """The `ok` entries, fastest first, uncounted ones last; without `spills` only those that keep all registers."""
        timed = [e for e in self._entries.values() if e.ms < math.inf and (spills or not e.measurement.spills)]
        return sorted(timed, key=lambda entry: entry.rank)

    def firsts(self) -> dict[Outcome, Entry]:
        """For each outcome other than `ok` the first such entry."""
        firsts: dict[Outcome, Entry] = {}
        for entry in self._entries.values():
            if entry.measurement.outcome is not Outcome.OK:
                firsts.setdefault(entry.measurement.outcome, entry)
        return firsts

    def first_messages(self) -> dict[Outcome, str]:
        """What these said."""
        return {o: f"{entry.candidate}: {entry.measurement.message}" for o, entry in self.firsts().items()}


def figures_of(entry: Entry) -> Figures:
    """Of an entry that has them."""
    assert entry.figures is not None
    return entry.figures


def is_time(ms: float) -> bool:
    """Whether a number can be the time of a kernel: neither NaN nor infinite, and more than 0."""
    return math.isfinite(ms) and ms > 0.0


def costs(measurement: Measurement) -> bool:
    """Whether a trial counts towards the budget: what was ruled out before it was built does not."""
    tried = measurement.build_seconds > 0.0 or measurement.verification is not None
    return measurement.outcome is not Outcome.INFEASIBLE or tried


def sane(measurement: Measurement) -> Measurement:
    """The measurement itself, or a launch error in its place when its time cannot be one."""
    ms = measurement.ms
    missing = ms is None and measurement.outcome is Outcome.OK
    if not missing and (ms is None or is_time(ms)):
        return measurement
    return replace(
        measurement, outcome=Outcome.LAUNCH_ERROR, timing=None, message=f"the device reported a time of {ms} ms"
    )
