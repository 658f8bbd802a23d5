"""A search whose times are measured, on a double of a GPU: real cubins, made-up times."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.core.outcome import Outcome
from autotune.store import open_store
from autotune.store.records import StoredMeasurement
from autotune.tuning.choose import choose_subject
from autotune.tuning.events import silent
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_one
from tests.gpu_double import GpuDoubleOpener

TEMPLATE = Path(__file__).parent / "faults" / "timed.cu.j2"


@dataclass(frozen=True)
class Found:
    folder: Path
    result: SearchResult
    records: list[StoredMeasurement]
    said: list[str]


def search(folder: Path, **options: object) -> Found:
    subject = choose_subject(None, [str(TEMPLATE)], "lower_half_reference:lower_half")
    problem = subject.problem({})
    opener = GpuDoubleOpener(problem, folder / "log")
    chosen = Options(sampler="grid", limit_s=3.0, jobs=1, **options)  # type: ignore[arg-type]
    with open_store(folder / "test.db") as store:
        result = search_one(subject, problem, opener, chosen, store, silent)
        records = list(store.measurements(problem, stage=None))
    return Found(folder, result, records, (folder / "log").read_text().splitlines())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return search(tmp_path_factory.mktemp("measured"))


def outcomes(found: Found) -> dict[tuple[object, ...], Outcome]:
    trials = [record for record in found.records if record.stage == "trial"]
    return {tuple(record.candidate.config.values()): record.measurement.outcome for record in trials}


def test_outcomes(found: Found) -> None:
    known = outcomes(found)
    assert known[9, 1, "a"] is Outcome.LAUNCH_ERROR
    assert known[9, 2, "a"] is Outcome.CRASH
    assert known[9, 3, "a"] is Outcome.TIMEOUT
    assert known[3, 0, "a"] is known[1, 0, "a"] is Outcome.OK
    assert known[5, 0, "a"] is known[9, 0, "a"] is Outcome.PRUNED
    assert len(known) == 10


def test_a_pruned_trial_keeps_its_time(found: Found) -> None:
    [pruned] = [r for r in found.records if r.candidate.config == {"SIZE": 5, "FAULT": 0, "SAME": "a"}]
    assert pruned.measurement.ms == 5.0
    assert "slower than 1.5 ms" in pruned.measurement.message


def test_the_worker_is_started_again_after_each_fault(found: Found) -> None:
    assert found.said.count("opened") == 4 + 2  # what crashed and what hung were tried once more


def test_equal_binaries_run_once(found: Found) -> None:
    assert found.said.count("run 2 0") == 2  # a verification
    twins = [record for record in found.records if record.candidate.config["SIZE"] == 2 and record.stage == "trial"]
    assert {twin.measurement.outcome for twin in twins} == {Outcome.PRUNED}
    assert len(twins) == 2


def test_the_winner_is_named_after_a_final(found: Found) -> None:
    assert found.result.best is not None
    assert found.result.best.ms == 1.0
    assert not found.result.estimated
    finals = [record for record in found.records if record.stage == "final"]
    assert [final.measurement.ms for final in finals] == [1.0, 3.0]
    times = [said for said in found.said if said.endswith("below None")][-6:]
    assert times == ["time 1 below None", "time 3 below None"] * 3  # in turn
    assert found.result.best.record_id in {final.id for final in finals}
    assert all(final.measurement.environment["driver"] == "580.1" for final in finals)


def test_nothing_new_needs_no_final(found: Found, tmp_path: Path) -> None:
    again = search(found.folder)
    assert (again.result.trials, again.result.resumed) == (10, 10)
    assert len(again.records) == len(found.records)
    assert again.result.best is not None
    assert again.result.best.candidate == found.result.best.candidate  # type: ignore[union-attr]
