"""Naming the winner: the fastest few are timed once more, interleaved, because the best of many trials was lucky."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement, Wrong
from autotune.core.outcome import Outcome
from autotune.devices.protocol import TimingBudget
from autotune.tuning.evaluator import RETIME_ROUNDS, Evaluator
from autotune.tuning.history import Records
from autotune.tuning.ledger import Entry, Ledger, is_time

FINALISTS = 5


FINAL_S = 10.0
"""Seconds that a final may take when the time is up; those of kernels of less than 100 ms are over in 7.5."""


def finalists_of(ranked: Sequence[Entry], standing: Candidate | None, most_s: float | None) -> tuple[list[Entry], int]:
    """The first `FINALISTS` of the `ranked`, and the `standing` winner if it is among the others.

    With `most_s` seconds only as many as can be timed in them, the standing winner before all but the fastest; and how
    many are left out for it. One alone has nobody to be compared with.
    """
    chosen = [*ranked[:FINALISTS], *(entry for entry in ranked[FINALISTS:] if entry.candidate == standing)]
    if most_s is None:
        return chosen, 0
    playing: list[Entry] = []
    for entry in sorted(chosen, key=lambda entry: entry != ranked[0] and entry.candidate != standing):
        most_s -= _timed_s(entry)
        if most_s < 0.0:
            break
        playing.append(entry)
    if len(playing) < min(2, len(chosen)):
        playing = []
    return [entry for entry in chosen if entry in playing], len(chosen) - len(playing)


def _timed_s(entry: Entry) -> float:
    """What timing a finalist takes at the most: see `TimingBudget`, and `time_adaptively` for very long runs."""
    budget, seconds = TimingBudget(), entry.ms / 1e3
    once = seconds if seconds > 1.0 else max(budget.max_seconds, (budget.warmup + budget.min_repeats) * seconds)
    return RETIME_ROUNDS * once


def hold_final(finalists: Sequence[Entry], records: Records, ledger: Ledger, evaluator: Evaluator) -> list[Entry]:
    """Re-time them and record each new time. Those whose results turn out to be wrong are recorded as such.

    Returns the others with their new times, fastest first; empty when none could be timed.
    """
    timings = evaluator.retime([entry.candidate for entry in finalists])
    final = []
    for entry, timing in zip(finalists, timings, strict=True):
        if isinstance(timing, Wrong):
            reject(entry, timing.message, records, ledger)
        elif timing is not None and is_time(timing.median_ms):
            measurement = replace(entry.measurement, outcome=Outcome.OK, timing=timing, message="")
            final.append(_recorded(entry, measurement, records))
    return sorted(final, key=lambda entry: entry.ms)


def first_right(
    ranked: Sequence[Entry], examine: Callable[[Candidate], str], records: Records, ledger: Ledger
) -> list[Entry]:
    """The ranked from the first on that passes its examination. Those before it are recorded as wrong."""
    for place, entry in enumerate(ranked):
        wrong = examine(entry.candidate)
        if not wrong:
            return [*ranked[place:]]
        reject(entry, wrong, records, ledger)
    return []


def reject(entry: Entry, message: str, records: Records, ledger: Ledger) -> None:
    """Record as wrong what had been found right."""
    measurement = replace(entry.measurement, outcome=Outcome.WRONG_RESULT, timing=None, message=message)
    records.reject(entry.record_id, message)
    ledger.reject(replace(entry, measurement=measurement))


def _recorded(entry: Entry, measurement: Measurement, records: Records) -> Entry:
    record_id = records.write_final(entry.candidate, entry.source_hash, measurement)
    return Entry(entry.candidate, measurement, entry.source_hash, record_id)
