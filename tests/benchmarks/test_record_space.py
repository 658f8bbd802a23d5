"""The recording of our own spaces: what is written is what `autotune replay` reads."""

from pathlib import Path

from autotune.core.outcome import Outcome
from autotune.devices.recorded import RecordedSpace
from autotune.store import open_store
from autotune.tuning.replayed import course
from benchmarks.record_space import SPACES, Stage, stages, write
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, failed, ok

SPACE = SPACES[0]


def test_the_default_problem_comes_first_and_random_configurations_before_searched_ones() -> None:
    forward, backward, *long = SPACES
    assert (forward.op, forward.HS, backward.op, backward.HS) == ("forward", 64, "backward", 64)
    found = stages(SPACES, 600, 200)
    assert found[:4] == [
        Stage(forward, "random", 600), Stage(backward, "random", 600),
        Stage(forward, "parzen", 800), Stage(backward, "parzen", 800),
    ]  # fmt: skip
    assert [stage.space for stage in found[4:]] == long * 2
    assert {stage.sampler for stage in stages(SPACES, 600, 0)} == {"random"}


def test_a_space_is_written_as_a_recording_that_can_be_replayed(tmp_path: Path) -> None:
    with open_store(tmp_path / "db.sqlite") as store:
        assert write(store, SPACE, tmp_path) == 0
        for number, measurement in enumerate((ok(2.0), failed(Outcome.COMPILE_ERROR), ok(3.0))):
            store.record(H200, FORWARD, candidate(64 << number, SPACE.family), SOURCE, measurement)
        store.record(H200, FORWARD, candidate(64, "flash_simt"), SOURCE, ok(0.5))
        store.record(H200, FORWARD.replace(T=512), candidate(64, SPACE.family), SOURCE, ok(0.7))
        assert write(store, SPACE, tmp_path / "data") == 3
    recording = RecordedSpace.load(tmp_path / "data" / SPACE.file)
    assert (recording.name, recording.best_ms) == (SPACE.family, 2.0)
    assert {result.outcome for result in recording.results.values()} == {Outcome.OK, Outcome.COMPILE_ERROR}
    assert course(recording, "parzen", trials=5, seed=0).steps[-1] == 1.0
