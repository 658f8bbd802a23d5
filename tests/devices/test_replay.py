import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autotune.core.candidate import make_candidate
from autotune.core.errors import UsageError
from autotune.core.measurement import Measurement, Timing
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.recorded import RecordedResult
from autotune.devices.replay import RecordedSpace, ReplayDevice
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.store.json_lines import Line

KERNEL_TUNER: dict[str, Any] = {
    "device_name": "NVIDIA H200",
    "kernel_name": "convolution",
    "tune_params_keys": ["block", "tile"],
    "tune_params": {"block": [16, 32], "tile": [1, 2, 4]},
    "cache": {
        "16,1": {"block": 16, "tile": 1, "time": 4.0, "times": [3.0, 4.0, 5.0]},
        "16,2": {"block": 16, "tile": 2, "time": 2.5},
        "16,4": {"block": 16, "tile": 4, "time": "CompilationFailedConfig"},
        "32,1": {"block": 32, "tile": 1, "time": "RuntimeFailedConfig"},
        "32,2": {"block": 32, "tile": 2, "time": "InvalidConfig"},
        "32,4": {"block": 32, "tile": 4, "time": float("nan")},
    },
}


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_a_kernel_tuner_file(tmp_path: Path) -> None:
    space = RecordedSpace.load(write(tmp_path / "space.json", KERNEL_TUNER))
    assert (space.name, space.device) == ("convolution", "NVIDIA H200")
    assert dict(space.parameters) == {"block": (16, 32), "tile": (1, 2, 4)}
    assert space.best_ms == 2.5
    assert list(space.configs)[:2] == [{"block": 16, "tile": 1}, {"block": 16, "tile": 2}]
    assert [space.lookup(config) for config in space.configs] == [
        RecordedResult(Outcome.OK, 4.0, (3.0, 4.0, 5.0)),
        RecordedResult(Outcome.OK, 2.5),
        RecordedResult(Outcome.COMPILE_ERROR, None),
        RecordedResult(Outcome.LAUNCH_ERROR, None),
        RecordedResult(Outcome.INFEASIBLE, None),
        RecordedResult(Outcome.LAUNCH_ERROR, None),
    ]


def test_a_gzipped_file_reads_the_same(tmp_path: Path) -> None:
    plain = RecordedSpace.load(write(tmp_path / "space.json", KERNEL_TUNER))
    packed = tmp_path / "space.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "space.json").read_bytes()))
    assert RecordedSpace.load(packed) == plain


def test_a_configuration_that_was_not_recorded_is_infeasible(tmp_path: Path) -> None:
    space = RecordedSpace.load(write(tmp_path / "space.json", KERNEL_TUNER))
    assert space.lookup({"tile": 8, "block": 16}) == RecordedResult(Outcome.INFEASIBLE, None)
    with pytest.raises(UsageError, match="configuration block=16 lacks tile"):
        space.lookup({"block": 16})


def test_the_device_plays_measurements_back(tmp_path: Path) -> None:
    device = ReplayDevice(RecordedSpace.load(write(tmp_path / "space.json", KERNEL_TUNER)))
    assert device.identity == DeviceIdentity("replay", gpu("h200"))
    assert device.identity.name == "replay:h200"
    measured = device.measure({"block": 16, "tile": 1})
    assert measured.outcome is Outcome.OK
    assert measured.timing == Timing("measured", 4.0, 3.5, 4.5, 3.0, 3, "replayed from a recording")
    failed = device.measure({"tile": 4, "block": 16})
    assert (failed.outcome, failed.timing) == (Outcome.COMPILE_ERROR, None)
    assert device.measure({"block": 16, "tile": 1}) == measured
    assert device.evaluations == 3


def test_a_recorded_mean_outside_the_quartiles_keeps_the_times_in_order(tmp_path: Path) -> None:
    cache = {"16,1": {"block": 16, "tile": 1, "time": 6.0, "times": [3.0, 3.0, 3.0, 15.0]}}
    device = ReplayDevice(RecordedSpace.load(write(tmp_path / "space.json", {**KERNEL_TUNER, "cache": cache})))
    timing = device.measure({"block": 16, "tile": 1}).timing
    assert timing is not None
    assert (timing.min_ms, timing.q1_ms, timing.median_ms, timing.q3_ms) == (3.0, 3.0, 6.0, 6.0)


def test_a_gpu_that_is_not_in_the_table(tmp_path: Path) -> None:
    data = {**KERNEL_TUNER, "device_name": "NVIDIA A100-PCIE-40GB"}
    device = ReplayDevice(RecordedSpace.load(write(tmp_path / "space.json", data)))
    assert device.identity.name == "replay:a100-pcie-40gb"


def line(tile: int, ms: float | None, *, template: str = "flash", op: str = "rowsum", stage: Any = "trial") -> str:
    timing = None if ms is None else Timing("measured", ms, ms, ms, ms, 7, "events")
    outcome = Outcome.LAUNCH_ERROR if ms is None else Outcome.OK
    record = Line(
        record="measurement",
        identity=DeviceIdentity("cuda", gpu("h200")),
        problem=Problem(op, (("T", 64), ("dtype", "fp16"))),
        candidate=make_candidate(template, "0" * 16, {"block": 32, "tile": tile}),
        source_hash="0" * 16,
        stage=stage,
        package_version="0.1.0",
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        measurement=Measurement(outcome, "", timing),
    )
    return record.text()


def test_an_export_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join([line(1, 3.0), line(2, 2.0), line(4, None), line(2, 2.1, stage="final"), ""]))
    space = RecordedSpace.load(path)
    assert (space.name, space.device) == ("flash", "NVIDIA H200")
    assert dict(space.parameters) == {"block": (32,), "tile": (1, 2, 4)}
    assert space.lookup({"block": 32, "tile": 2}) == RecordedResult(Outcome.OK, 2.0)
    assert space.lookup({"block": 32, "tile": 4}) == RecordedResult(Outcome.LAUNCH_ERROR, None)
    assert space.best_ms == 2.0


def test_an_export_of_several_families_needs_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join([line(1, 3.0), line(1, 5.0, template="unfused")]))
    with pytest.raises(UsageError, match=r"one: choose one with --template NAME \(there are flash, unfused\)"):
        RecordedSpace.load(path)
    assert RecordedSpace.load(path, template="unfused").best_ms == 5.0
    with pytest.raises(UsageError, match="holds no measurement of template 'other'"):
        RecordedSpace.load(path, template="other")


def test_an_export_of_several_problems_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join([line(1, 3.0), line(1, 5.0, op="colsum")]))
    with pytest.raises(UsageError, match="several problems"):
        RecordedSpace.load(path)


def test_nothing_succeeded(tmp_path: Path) -> None:
    cache = {"16,4": {"block": 16, "tile": 4, "time": "CompilationFailedConfig"}}
    space = RecordedSpace.load(write(tmp_path / "space.json", {**KERNEL_TUNER, "cache": cache}))
    with pytest.raises(UsageError, match="no configuration that succeeded"):
        _ = space.best_ms


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b"3",
        b'{"some": "object"}',
        b'{"tune_params_keys": ["a"]}',
        b'{"record": "measurement"}',
        b"\x1f\x8bbroken",
        b"\xff\xfe",
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="file"):
        RecordedSpace.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the recording .*missing\.json"):
        RecordedSpace.load(tmp_path / "missing.json")
