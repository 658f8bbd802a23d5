"""One search over kernels with every kind of fault: each is recorded as what it is, and none wins."""

from pathlib import Path

import pytest

from autotune.core.outcome import Outcome
from autotune.devices.factory import CpuOpener
from autotune.gpus.known import gpu
from autotune.store import open_store
from autotune.store.records import StoredMeasurement
from autotune.tuning.choose import choose_subject
from autotune.tuning.events import silent
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_one

FOLDER = Path(__file__).parent / "faults"
FAMILIES = (str(FOLDER / "faults.cu.j2"), str(FOLDER / "greedy.cu.j2"))
REFERENCE = "lower_half_reference:lower_half"

EXPECTED = {
    "none": (Outcome.OK, ""),
    "illegal": (Outcome.LAUNCH_ERROR, "illegal write"),
    "endless": (Outcome.TIMEOUT, "no result within 4 s"),
    "abort": (Outcome.LAUNCH_ERROR, "abort"),
    "killed": (Outcome.CRASH, "SIGKILL"),
    "trap": (Outcome.LAUNCH_ERROR, "trap"),
    "syntax": (Outcome.COMPILE_ERROR, "nothing_of_this_name"),
    "static_smem": (Outcome.INFEASIBLE, "asks for 234096 bytes of shared memory"),
    "half": (Outcome.WRONG_RESULT, "y: 1152 elements NaN or Inf, or not written; first at (24, 0)"),
    "nan": (Outcome.WRONG_RESULT, "y: 1128 elements NaN or Inf, or not written; first at (0, 1)"),
    "sign": (Outcome.WRONG_RESULT, "y: error"),
    "scale": (Outcome.WRONG_RESULT, "y: error"),
    "masked": (Outcome.WRONG_RESULT, "at (3, 4), bound"),
    "accumulate": (Outcome.WRONG_RESULT, "run again over other values: y: error"),
}

Found = tuple[SearchResult, dict[str, StoredMeasurement]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The result of the search, and the record of each fault (`greedy` for the other family)."""
    subject = choose_subject(None, FAMILIES, REFERENCE)
    problem = subject.problem({})
    options = Options(sampler="grid", limit_s=4.0)
    with open_store(tmp_path_factory.mktemp("faults") / "faults.db") as store:
        result = search_one(subject, problem, CpuOpener(gpu("h200"), 2), options, store, silent)
        records = list(store.measurements(problem))
        winner = store.winner(problem, result.device)
    assert winner is not None
    assert winner.record.candidate.config == {"FAULT": "none"}
    return result, {str(record.candidate.config.get("FAULT", "greedy")): record for record in records}


@pytest.mark.parametrize("fault", EXPECTED)
def test_each_fault_is_recorded_as_what_it_is(found: Found, fault: str) -> None:
    _, records = found
    outcome, message = EXPECTED[fault]
    measurement = records[fault].measurement
    assert (measurement.outcome, measurement.message) == (outcome, measurement.message)
    assert message in measurement.message
    assert (measurement.timing is not None) == (fault == "none")


def test_too_much_shared_memory_says_how_much_was_asked_and_how_much_there_is(found: Found) -> None:
    _, records = found
    for fault, asked in (("greedy", "300000"), ("static_smem", "234096")):
        measurement = records[fault].measurement
        assert measurement.outcome is Outcome.INFEASIBLE
        assert asked in measurement.message
        assert str(gpu("h200").max_shared_memory) in measurement.message


def test_the_search_went_on_and_the_right_one_won(found: Found) -> None:
    result, records = found
    assert set(records) == {*EXPECTED, "greedy"}
    assert result.stopped == "exhausted"
    assert result.best is not None
    assert result.best.candidate.config == {"FAULT": "none"}
    assert len(result.table) == 1
    assert result.estimated
    assert result.outcomes == {
        Outcome.OK: 1, Outcome.LAUNCH_ERROR: 3, Outcome.TIMEOUT: 1, Outcome.CRASH: 1, Outcome.COMPILE_ERROR: 1,
        Outcome.INFEASIBLE: 2, Outcome.WRONG_RESULT: 6,
    }  # fmt: skip


def test_a_right_one_carries_all_that_is_known(found: Found) -> None:
    result, _ = found
    assert result.best is not None
    measurement = result.best.measurement
    assert measurement.timing is not None
    assert measurement.timing.kind == "estimated"
    assert measurement.verification is not None
    assert measurement.verification.passed
    [kernel] = measurement.resources
    assert kernel.threads == 48
    assert kernel.registers > 0
    assert "nvcc" in measurement.environment["compiler"]
    assert measurement.build_seconds > 0
