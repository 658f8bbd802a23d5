"""Naming the winner: the fastest few are timed once more, interleaved, because the best of many trials was lucky."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.tuning.evaluator import Evaluator
from autotune.tuning.history import Records
from autotune.tuning.ledger import Entry, Ledger, is_time

FINALISTS = 5


def hold_final(
    ranked: Sequence[Entry], standing: Candidate | None, records: Records, evaluator: Evaluator
) -> list[Entry]:
    """Re-time the first `FINALISTS` of the `ranked`, and the `standing` winner if it is among the others; record each
    new time.

    Returns the finalists with their new times, fastest first; empty when none could be timed.
    """
    finalists = [*ranked[:FINALISTS], *(entry for entry in ranked[FINALISTS:] if entry.candidate == standing)]
    timings = evaluator.retime([entry.candidate for entry in finalists])
    final = []
    for entry, timing in zip(finalists, timings, strict=True):
        if timing is not None and is_time(timing.median_ms):
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
        measurement = replace(entry.measurement, outcome=Outcome.WRONG_RESULT, timing=None, message=wrong)
        records.reject(entry.record_id, wrong)
        ledger.reject(replace(entry, measurement=measurement))
    return []


def _recorded(entry: Entry, measurement: Measurement, records: Records) -> Entry:
    record_id = records.write_final(entry.candidate, entry.source_hash, measurement)
    return Entry(entry.candidate, measurement, entry.source_hash, record_id)
