"""A record that was right and is taken back: it is a wrong result from then on, and wins no more."""

from pathlib import Path

import pytest

from autotune.core.outcome import Outcome
from autotune.store import open_store
from tests.store.store_records import CPU_H200, FORWARD, H100, H200, SOURCE, candidate, ok


@pytest.mark.parametrize("identity", [H200, CPU_H200], ids=["measured", "estimated"])
def test_what_is_taken_back_wins_no_more(tmp_path: Path, identity: object) -> None:
    kind = "measured" if identity is H200 else "estimated"
    device = H200 if identity is H200 else CPU_H200
    with open_store(tmp_path / "a.db") as store:
        slow = store.record(device, FORWARD, candidate(32), SOURCE, ok(2.0, kind))
        fast = store.record(device, FORWARD, candidate(64), SOURCE, ok(1.0, kind))
        elsewhere = store.record(H100, FORWARD, candidate(64), SOURCE, ok(1.0))
        final = store.record(device, FORWARD, candidate(64), SOURCE, ok(1.1, kind), stage="final")
        assert store.name_winner(final)
        store.reject(fast, "a race")
        records = {record.id: record for record in store.measurements(FORWARD, stage=None)}
        for number in (fast, final):
            measurement = records[number].measurement
            assert (measurement.outcome, measurement.message) == (Outcome.WRONG_RESULT, "a race")
            assert (measurement.timing, measurement.verification is not None) == (None, True)
        assert records[slow].measurement.outcome is records[elsewhere].measurement.outcome is Outcome.OK
        winner = store.winner(FORWARD, device.name)
        assert winner is not None
        assert winner.record.id == slow
        store.reject(slow, "another")
        assert store.winner(FORWARD, device.name) is None
        assert store.winner(FORWARD, H100.name) is not None
