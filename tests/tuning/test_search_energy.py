"""Searches by energy and within an error, on a double of a GPU: real cubins, made-up times and energies."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import autotune
from autotune.core.errors import DeviceRefused, UsageError
from autotune.core.outcome import Outcome
from autotune.report.pareto import pareto_columns, pareto_rows
from autotune.report.results import best_lines, table_columns, table_rows
from autotune.store import open_store
from autotune.store.records import StoredMeasurement
from autotune.tuning.choose import choose_subject
from autotune.tuning.events import silent
from autotune.tuning.examination import Examiner
from autotune.tuning.objective import OBJECTIVES, Demand
from autotune.tuning.pins import pinned
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_one
from tests.gpu_double import GpuDoubleOpener

TIMED = Path(__file__).parent / "faults" / "timed.cu.j2"


@dataclass(frozen=True)
class Found:
    result: SearchResult
    records: list[StoredMeasurement]
    said: list[str]

    @property
    def trials(self) -> Mapping[object, StoredMeasurement]:
        return {r.candidate.config["SIZE"]: r for r in self.records if r.stage == "trial"}


def search(folder: Path, demand: Demand, watts: float = 700.0) -> Found:
    """Of kernels that take 10, 11, 12 and 30 ms: the slower, the less power."""
    template = folder / "timed.cu.j2"
    text = TIMED.read_text().replace("SIZE = [3, 1, 2, 4, 5, 9]", "SIZE = [10, 11, 12, 30]")
    template.write_text(text.replace("SIZE = 3", "SIZE = 10"))
    shutil.copy(TIMED.with_name("lower_half_reference.py"), folder)
    subject = choose_subject(None, [str(template)], "lower_half_reference:lower_half")
    subject = pinned(subject, {"FAULT": 0, "SAME": "a"})
    opener = GpuDoubleOpener(subject.problem({}), folder / "log", watts)
    with open_store(folder / "test.db") as store:
        chosen = Options(sampler="grid", limit_s=10.0, jobs=1, demand=demand)
        result = search_one(subject, subject.problem({}), opener, chosen, store, silent)
        records = list(store.measurements(subject.problem({}), stage=None))
    return Found(result, records, (folder / "log").read_text().splitlines())


@pytest.fixture(scope="module", autouse=True)
def unexamined() -> Iterator[None]:
    """Winners are examined elsewhere (`test_examination`): that takes builds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Examiner, "complaint", lambda examiner, candidate: "")
        yield


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return search(tmp_path_factory.mktemp("both"), Demand(OBJECTIVES["time,energy"]))


def test_the_front_of_time_and_energy(both: Found) -> None:
    front = both.result.pareto
    assert [ranked.candidate.config["SIZE"] for ranked in front] == [10, 11, 12]
    assert [ranked.measurement.mj for ranked in front] == pytest.approx([7000.0, 6674.2, 6390.1], rel=1e-4)
    assert [ranked.measurement.energy.idle_w for ranked in front if ranked.measurement.energy] == [80.0] * 3
    assert both.result.best is not None
    assert both.result.best.candidate == front[0].candidate
    assert front[0].gflops_per_watt == pytest.approx(front[0].tflops * 1e3 / 700.0)


def test_what_cannot_win_by_its_energy_is_not_measured(both: Found) -> None:
    assert both.trials[30].measurement.outcome is Outcome.PRUNED
    assert "slower than 20 ms" in both.trials[30].measurement.message  # what is slower by half may draw less
    assert both.trials[30].measurement.energy is None
    metered = [said for said in both.said if said.startswith("meter")]
    assert metered[:3] == ["meter 10 for 0.5", "meter 11 for 0.5", "meter 12 for 0.5"]
    assert metered[3:] == metered[:3] * 3  # the finalists in turn
    assert both.said.count("idle") == 1


def test_trials_and_finals_keep_their_energies(both: Found) -> None:
    known = [(r.stage, r.candidate.config["SIZE"], r.measurement.energy is not None) for r in both.records]
    assert known == [
        *(("trial", size, size < 30) for size in (10, 11, 12, 30)), *(("final", size, True) for size in (10, 11, 12)),
    ]  # fmt: skip


def test_the_front_is_shown(both: Found) -> None:
    rows = list(pareto_rows(both.result.pareto))
    assert pareto_columns()[:6] == [">ms", ">mJ", ">W", ">GFLOP/s/W", ">time", ">energy"]
    assert [row[:3] + row[4:6] for row in rows] == [
        ["10", "7000", "700", "least", "+9.5%"], ["11", "6674", "607", "+10.0%", "+4.4%"],
        ["12", "6390", "533", "+20.0%", "least"],
    ]  # fmt: skip
    assert rows[1][-1] == "SIZE=11"
    assert table_columns(both.result)[2:6] == [">ms", ">mJ", ">W", ">GFLOP/s/W"]
    assert next(table_rows(both.result))[2:5] == ["10", "7000", "700"]
    lines = list(best_lines(both.result))
    assert lines[0].startswith("best in time: 10 ms, 7000 mJ a call (700 W), ")
    assert (
        "energy: all that the GPU takes for a call, from 0.5 s back to back (made up); 80 W of it are drawn idle"
        in lines
    )
    data = both.result.to_json()
    assert data["objective"] == "time,energy"
    assert [row["energy_mj"] for row in data["pareto"]] == [ranked.measurement.mj for ranked in both.result.pareto]


def test_the_least_energy_wins(tmp_path: Path) -> None:
    """A search by time is gone on with: its trials are not made again, and their energies are measured at the end."""
    before = search(tmp_path, Demand())
    assert before.result.best is not None
    assert before.result.best.candidate.config["SIZE"] == 10
    assert not before.result.pareto
    assert not any(said.startswith(("meter", "idle")) for said in before.said)
    found = search(tmp_path, Demand(OBJECTIVES["energy"], energy_s=1.0)).result
    assert (found.resumed, found.new) == (4, 0)
    assert found.best is not None
    assert found.best.candidate.config["SIZE"] == 12
    again = search(tmp_path, Demand(OBJECTIVES["energy"], energy_s=1.0))
    assert again.result.best is not None
    assert again.result.best.record_id == found.best.record_id  # nothing is new, and nothing is measured again
    with open_store(tmp_path / "test.db") as store:
        [winner] = store.winners()
        assert winner.record.candidate.config["SIZE"] == 10  # in time


def test_a_gpu_that_does_not_tell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeviceRefused, match="no energy to measure: it has no counter; search with --objective time"):
        search(tmp_path, Demand(OBJECTIVES["edp"]), watts=0.0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"objective": "energy"}, "energy is measured on a GPU alone"),
        ({"objective": "watts"}, "objective 'watts' is none"),
        ({"max_error": 0.0}, "max_error=0.0 must be a number, and more than 0"),
        ({"energy_seconds": 0.01}, "energy_seconds=0.01 must be 0.2 to 60.0"),
        ({"clock": 1200}, "a GPU can be held to 1200MHz, and this is none"),
        ({"clock": 1200, "power_limit": 400}, r"held to 1200MHz\+400W"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        autotune.search("forward", device="cpu", target="h200", db=tmp_path / "a.db", **asked)  # type: ignore[arg-type]
