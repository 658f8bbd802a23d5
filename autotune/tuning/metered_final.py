"""How a search that measures energy ends: what was not measured and may win is, then the finalists once more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from autotune.core.candidate import Candidate
from autotune.core.measurement import Wrong
from autotune.core.outcome import Outcome
from autotune.tuning.evaluator import Evaluator
from autotune.tuning.finalists import FINALISTS, first_right, reject
from autotune.tuning.history import Records
from autotune.tuning.ledger import Entry, Ledger, figures_of, is_time
from autotune.tuning.objective import Metered, Objective, front

MOST_LATE = 16
"""Candidates whose energy is measured at the end: those of earlier searches that looked at the time alone."""

MOST_OF_FRONT = 8
ROUNDS = 3


@dataclass
class MeteredFinal:
    """The last part of a search by energy, or by both."""

    objective: Objective
    ledger: Ledger
    records: Records
    evaluator: Evaluator
    hurry: bool = False
    """Whether somebody waits for the end: nothing more is measured."""
    late: Callable[[], bool] = lambda: False
    """Whether the time is up: no more energies are measured that earlier searches did not ask for."""
    new: bool = True
    """Whether anything has been learned since the last final."""

    def held(self, ranked: Sequence[Entry], examine: Callable[[Candidate], str], *, spills: bool) -> list[Entry]:
        """The finalists by their new figures, best first, then all others; with several objectives fastest first.

        The best passes its examination; with several objectives both ends of the front do. Only such a search names a
        winner in time: its fastest finalist, which it has compared with the standing one.

        Args:
            ranked: the right candidates, fastest first.
            examine: what is wrong with a candidate; empty if nothing.
        """
        if not self.hurry:
            self._measure_late(ranked)
        known = [entry for entry in self.ledger.ranked(spills=spills) if entry.figures is not None]
        final = self._finalists(known)
        final = final if self.hurry else self._known(final) or self._timed(final)
        final = first_right(self._sorted(final), examine, self.records, self.ledger)
        if self.objective.several:
            final = self._sorted(first_right(sorted(final, key=_by_energy), examine, self.records, self.ledger))
            if final:
                self.records.name_winner(final[0].record_id, spills=spills)
        played = {entry.candidate for entry in final}
        others = [entry for entry in self.ledger.ranked(spills=spills) if entry.candidate not in played]
        return final + self._sorted(others)

    def _measure_late(self, ranked: Sequence[Entry]) -> None:
        """Energies of candidates near the front that have none, one by one: each narrows what may still win."""
        metered = Metered(self.objective)
        for entry in ranked:
            if entry.measurement.energy is not None:
                metered.note(entry.ms, entry.measurement.energy)
        unknown = (entry for entry in ranked if entry.figures is None and metered.worth(entry.ms))
        for entry in islice(unknown, MOST_LATE):
            if self.late() and metered.known:
                return
            (energy,) = self.evaluator.meter([entry.candidate], 1)
            if energy is not None:
                metered.note(entry.ms, energy)
                self.records.add_energy(entry.record_id, energy)
                self.ledger.add_energy(entry.candidate, energy)

    def _finalists(self, known: Sequence[Entry]) -> list[Entry]:
        """The best few; with several objectives as many of the front, both ends among them, and the standing winner."""
        if not self.objective.several:
            return self._sorted(known)[:FINALISTS]
        best = front(known, figures_of)
        if len(best) > MOST_OF_FRONT:
            step = (len(best) - 1) / (MOST_OF_FRONT - 1)
            best = [best[round(place * step)] for place in range(MOST_OF_FRONT)]
        standing = self.records.standing("measured")
        there = {entry.candidate for entry in best}
        return best + [e for e in known if standing and e.candidate == standing.candidate and e.candidate not in there]

    def _known(self, finalists: Sequence[Entry]) -> list[Entry]:
        """The finalists as an earlier final has them, if nothing is new since; else none."""
        records = {} if self.new else self.records.metered_finals()
        if not all(entry.candidate in records for entry in finalists):
            return []
        found = (records[entry.candidate] for entry in finalists)
        return [Entry(record.candidate, record.measurement, record.source_hash, record.id) for record in found]

    def _timed(self, finalists: Sequence[Entry]) -> list[Entry]:
        """With their new times and energies, each recorded; without those that could not be measured again.

        Who turns out to be wrong is recorded as that.
        """
        candidates = [entry.candidate for entry in finalists]
        timings = self.evaluator.retime(candidates)
        energies = self.evaluator.meter(candidates, ROUNDS)
        final = []
        for entry, timing, energy in zip(finalists, timings, energies, strict=True):
            if isinstance(timing, Wrong):
                reject(entry, timing.message, self.records, self.ledger)
            elif timing is not None and is_time(timing.median_ms) and energy is not None:
                found = replace(entry.measurement, outcome=Outcome.OK, timing=timing, energy=energy, message="")
                number = self.records.write_final(entry.candidate, entry.source_hash, found)
                final.append(Entry(entry.candidate, found, entry.source_hash, number))
        return final

    def _sorted(self, entries: Sequence[Entry]) -> list[Entry]:
        """By the objective; those without an energy last, by time."""

        def key(entry: Entry) -> tuple[bool, float]:
            figures = entry.figures
            return figures is None, entry.ms if figures is None else self.objective.cost(figures)

        return sorted(entries, key=key)


def _by_energy(entry: Entry) -> float:
    return figures_of(entry)[1]
