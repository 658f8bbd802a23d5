"""`autotune replay` and recordings of other tuners."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.cli.main import run
from autotune.core.errors import UsageError
from autotune.core.outcome import Outcome
from autotune.devices.recorded import RecordedResult, RecordedSpace
from autotune.report.replays import Compared, as_data, draw, mean_rows, row
from autotune.tuning.replayed import Course

LIMITS = "DeviceLimitsExceeded"


def cache(path: Path, *, closed: str = "}}") -> Path:
    """A Kernel Tuner cache of 36 configurations, an entry a line, as Kernel Tuner writes them while it runs."""
    head: dict[str, Any] = {
        "device_name": "NVIDIA H200", "kernel_name": "sum", "tune_params_keys": ["A", "B"],
        "tune_params": {"A": list(range(6)), "B": list(range(6))},
    }  # fmt: skip
    entries = []
    for a in range(6):
        for b in range(6):
            entry: dict[str, Any] = {"A": a, "B": b, "time": 1.0 + abs(a - 2) + abs(b - 4)}
            if a == 5:
                entry = {"A": a, "B": b, "__error__": "CompilationFailedConfig"}
            entries.append(f'"{a},{b}": {json.dumps(entry)}')
    text = json.dumps(head)[:-1] + ',\n"cache": {\n' + ",\n".join(entries) + closed
    path.write_text(text)
    return path


def test_failures_without_a_time(tmp_path: Path) -> None:
    space = RecordedSpace.load(cache(tmp_path / "a.json"))
    assert space.lookup({"A": 5, "B": 0}) == RecordedResult(Outcome.COMPILE_ERROR, None)
    assert space.lookup({"A": 2, "B": 4}) == RecordedResult(Outcome.OK, 1.0)


@pytest.mark.parametrize("end", ["", ",", ",\n", ',\n"9,9": {"A": 9, "B"', "\n"])
def test_a_cache_that_was_not_closed(tmp_path: Path, end: str) -> None:
    whole = RecordedSpace.load(cache(tmp_path / "whole.json"))
    assert RecordedSpace.load(cache(tmp_path / "killed.json", closed=end)) == whole


def test_a_cache_that_is_broken_elsewhere(tmp_path: Path) -> None:
    broken = cache(tmp_path / "broken.json")
    broken.write_text(broken.read_text().replace('"B": 3', '"B" 3', 1))
    with pytest.raises(UsageError, match=r"broken\.json is no recording"):
        RecordedSpace.load(broken)


@pytest.mark.parametrize("form", ["kernel-tuner", "t4"])
def test_what_is_written_is_what_was_read(tmp_path: Path, form: str) -> None:
    space = RecordedSpace.load(cache(tmp_path / "a.json"))
    (tmp_path / "b.json").write_text(space.text(form))
    again = RecordedSpace.load(tmp_path / "b.json")
    assert {key: (r.outcome, r.median_ms) for key, r in again.results.items()} == {
        key: (r.outcome, r.median_ms) for key, r in space.results.items()
    }
    assert (again.name, again.device, again.parameters) == (space.name, space.device, space.parameters)


def test_t4_results(tmp_path: Path) -> None:
    def entry(a: int, invalidity: str, **more: Any) -> dict[str, Any]:
        return {"configuration": {"A": a}, "invalidity": invalidity, "objectives": ["time"], **more}

    ok = entry(1, "correct", measurements=[{"name": "time", "value": 2.5}], times={"runtimes": [2.0, 3.0]})
    failed = entry(2, "runtime", measurements=[{"name": "time", "value": "RuntimeFailedConfig"}], times={})
    wrong = entry(3, "correctness", measurements=[{"name": "time", "value": 0.1}], times={})
    results = [ok, failed, wrong, entry(4, "constraints"), entry(5, "compile"), entry(6, "timeout")]
    path = tmp_path / "convolution.json"
    path.write_text(
        json.dumps({"schema_version": "1.0.0", "metadata": {"timeunit": "miliseconds"}, "results": results})
    )
    space = RecordedSpace.load(path)
    assert space.name == "convolution"
    assert [space.lookup({"A": a}) for a in range(1, 7)] == [
        RecordedResult(Outcome.OK, 2.5, (2.0, 3.0)),
        RecordedResult(Outcome.LAUNCH_ERROR, None),
        RecordedResult(Outcome.WRONG_RESULT, None),
        RecordedResult(Outcome.INFEASIBLE, None),
        RecordedResult(Outcome.COMPILE_ERROR, None),
        RecordedResult(Outcome.TIMEOUT, None),
    ]


def test_a_time_is_read_whatever_was_tuned_for(tmp_path: Path) -> None:
    """Of GFLOP/s more is better: they stand for no time, in no format."""
    names = {"tune_params_keys": ["A"], "tune_params": {"A": [1, 2, 3]}}
    entries = {
        "1": {"A": 1, "time": 2.0, "times": [2.0], "GFLOP/s": 50.0},
        "2": {"A": 2, "time": 4.0, "times": [4.0], "GFLOP/s": 25.0},
        "3": {"A": 3, "GFLOP/s": "CompilationFailedConfig"},
    }
    head = {"device_name": "NVIDIA H200", "kernel_name": "sum", "objective": "GFLOP/s", **names}
    path = tmp_path / "kernel_tuner.json"
    path.write_text(json.dumps({**head, "cache": entries}))
    rate, wall = {"name": "GFLOP/s", "value": 50.0, "unit": "GFLOP/s"}, {"name": "time", "value": 2000.0, "unit": "us"}
    t4 = [
        {"configuration": {"A": 1}, "invalidity": "correct", "objectives": ["GFLOP/s"], "measurements": [rate, wall]},
        {"configuration": {"A": 2}, "invalidity": "correct", "objectives": ["GFLOP/s"], "measurements": [rate]},
        {
            "configuration": {"A": 3}, "invalidity": "correct", "objectives": ["wall"],
            "measurements": [{"name": "wall", "value": 0.004, "unit": "seconds"}],
        },
    ]  # fmt: skip
    other = tmp_path / "t4.json"
    other.write_text(json.dumps({"metadata": {"timeunit": "milliseconds"}, "results": t4}))
    space, found = RecordedSpace.load(path), RecordedSpace.load(other)
    assert [space.lookup({"A": a}).median_ms for a in (1, 2, 3)] == [2.0, 4.0, None]
    assert space.lookup({"A": 3}).outcome is Outcome.COMPILE_ERROR
    assert [found.lookup({"A": a}).median_ms for a in (1, 2, 3)] == [2.0, None, 4.0]


def test_the_output_of_ktt(tmp_path: Path) -> None:
    def entry(a: int, status: str, duration: float) -> dict[str, Any]:
        pairs = [{"Name": "A", "Value": a, "ValueType": "UnsignedInt"}]
        return {"Configuration": pairs, "KernelName": "sum", "Status": status, "TotalDuration": duration}

    results = [entry(1, "Ok", 2500.0), entry(2, "ComputationFailed", 0.0), entry(3, "ValidationFailed", 1.0)]
    results += [entry(4, "CompilationFailed", 0.0), entry(5, LIMITS, 0.0)]
    metadata = {"Device": "NVIDIA H200", "TimeUnit": "Microseconds"}
    path = tmp_path / "ktt.json"
    path.write_text(json.dumps({"Metadata": metadata, "Results": results}))
    space = RecordedSpace.load(path)
    assert (space.name, space.device, space.best_ms) == ("sum", "NVIDIA H200", 2.5)
    assert [space.lookup({"A": a}).outcome for a in range(2, 6)] == [
        Outcome.LAUNCH_ERROR, Outcome.WRONG_RESULT, Outcome.COMPILE_ERROR, Outcome.INFEASIBLE,
    ]  # fmt: skip


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(cache(tmp_path / name)) for name in ("one.json", "two.json")]
    assert run(["replay", *files, "--sampler", "random", "--trials", "36,6", "--seeds", "3", "--in-flight", "1,2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["recording", "optimum", "ms", "sampler", "in", "flight", "after", "6", "after", "36",
                                "built", "time"]  # fmt: skip
    assert [line.split()[:4] for line in lines[1:5]] == [
        [name, "1", "random", flight] for name in ("one", "two") for flight in ("1", "2")
    ]
    assert all("1.000 / 1.000  " in line for line in lines[1:])
    assert {tuple(line.split()[-2:]) for line in lines[1::2]} == {("36", "576")}  # 36 builds of 15, one after the other
    assert all(288 < int(line.split()[-1]) < 360 for line in lines[2::2])  # two at a time
    assert [line.split()[:4] for line in lines[5:]] == [["geometric", "mean", "random", f] for f in ("1", "2")]


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(cache(tmp_path / "a.json")), "--trials", "30", "--seeds", "2", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["optimum_ms"], found["in_flight"]) == (1.0, 1)
    [after] = found["after"]
    assert after["trials"] == 30
    assert after["median"] == sum(after["seeds"]) / 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trials", "0"], "--trials takes numbers from 1"),
        (["--in-flight", "1,x"], "--in-flight takes numbers from 1"),
        (["--sampler", "anneal"], "unknown sampler"),
        (["--plot", "a.txt"], "must end in"),
    ],
)
def test_a_wrong_request(tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(cache(tmp_path / "a.json")), *options]) == 2
    assert message in capsys.readouterr().err


def compared(*courses: list[float], file: str = "a.json") -> Compared:
    return Compared(file, 1.0, "random", 4, [Course(steps, 10, 40.0) for steps in courses])


def test_quantiles_are_interpolated_and_short_searches_stay_as_they_ended() -> None:
    c = compared([4.0, 2.0, 1.0], [3.0, 3.0], [2.0, 1.5, 1.5])
    assert [c.quantile(0.5, n) for n in (1, 2, 3)] == [3.0, 2.0, 1.5]
    assert c.quantile(0.9, 3) == pytest.approx(2.7)
    assert row(c, [3]) == ["a", "1", "random", "4", "1.500 / 2.700", "10", "40"]


def test_a_search_that_found_nothing_stays_infinite() -> None:
    c = compared([math.inf, math.inf], [math.inf, 2.0])
    assert c.quantile(0.9, 2) == math.inf
    assert as_data([c], [2])[0]["after"][0]["seeds"] == [math.inf, 2.0]


def test_means_are_geometric() -> None:
    rows = mean_rows([compared([1.0]), compared([4.0], file="b.json")], [1])
    assert rows == [["geometric mean", "", "random", "4", "2.000 / 2.000", "10", "40"]]


def test_a_picture_has_a_line_for_each_kind() -> None:
    pytest.importorskip("matplotlib")
    figure = draw([compared([3.0, 1.0], [2.0, 2.0]), compared([5.0, 1.0], file="b.json")])
    lines = [line for axes in figure.axes for line in axes.lines]
    assert [np.asarray(line.get_ydata()).tolist() for line in lines] == [[2.5, 1.5], [5.0, 1.0]]


def test_energies_of_a_cache_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernel Tuner's observers measure joules: 5 mJ for each of the times here, less where B is small."""
    path = cache(tmp_path / "a.json")
    data = json.loads(path.read_text())
    for entry in data["cache"].values():
        if "time" in entry:
            entry["nvml_energy"] = 0.005 * entry["time"] * (1 + entry["B"])
    path.write_text(json.dumps(data | {"objective": "nvml_energy"}))
    space = RecordedSpace.load(path)
    assert space.lookup({"A": 2, "B": 4}) == RecordedResult(Outcome.OK, 1.0, energy_mj=25.0)
    assert run(["replay", str(path), "--objective", "energy", "--trials", "36", "--seeds", "1", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["optimum_mj"] == pytest.approx(25.0)
    assert found["after"][0]["median"] == 1.0
    assert run(["replay", str(path), "--objective", "edp", "--trials", "36", "--seeds", "1"]) == 0
    assert "optimum mJ ms" in capsys.readouterr().out
    for objective, said in (("time,energy", "no single optimum"), ("joules", "'joules' is none")):
        assert run(["replay", str(path), "--objective", objective]) == 2
        assert said in capsys.readouterr().err
    assert run(["replay", str(cache(tmp_path / "b.json")), "--objective", "energy"]) == 2
    assert "tells no energies; replay it with --objective time" in capsys.readouterr().err
