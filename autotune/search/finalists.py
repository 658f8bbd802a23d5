"""Naming the winner: the fastest few are timed once more, interleaved, because the best of many trials was lucky."""

from collections.abc import Iterable
from dataclasses import replace

from autotune.candidate import Candidate
from autotune.measurement import Measurement
from autotune.outcome import Outcome
from autotune.search.evaluator import Evaluator
from autotune.search.ledger import Entry, Ledger, is_time
from autotune.search.records import Records

FINALISTS = 5


def hold_final(
    ledger: Ledger, records: Records, evaluator: Evaluator, also: Iterable[Candidate] = (), *, spills: bool = True
) -> list[Entry]:
    """Re-time the fastest `FINALISTS` candidates and those in `also` (the standing winner); record each new time.

    Without `spills`, only candidates that spill no registers take part.

    Returns the finalists with their new times, fastest first; empty when there was nothing to time.
    """
    finalists = ledger.ranked(FINALISTS, spills=spills)
    for candidate in also:
        entry = ledger.get(candidate)
        welcome = entry is not None and is_time(entry.ms) and (spills or not entry.measurement.spills)
        if entry is not None and welcome and entry not in finalists:
            finalists.append(entry)
    if not finalists:
        return []
    timings = evaluator.retime([entry.candidate for entry in finalists])
    final = []
    for entry, timing in zip(finalists, timings, strict=True):
        if timing is not None and is_time(timing.median_ms):
            measurement = replace(entry.measurement, outcome=Outcome.OK, timing=timing, message="")
            final.append(_recorded(entry, measurement, records))
    return sorted(final, key=lambda entry: entry.ms)


def _recorded(entry: Entry, measurement: Measurement, records: Records) -> Entry:
    record_id = records.write_final(entry.candidate, entry.source_hash, measurement)
    return Entry(entry.candidate, measurement, entry.source_hash, record_id)
