"""Nsight Compute on a winner: the command, the run with a program that stands in for ncu, and what ncu prints, read."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.answers import profiling
from autotune.answers.ncu_table import MARK, parse_profile, read_profile
from autotune.answers.profiling import ProfileTask, kernel_of, launch, ncu_command, task_of
from autotune.cli.main import run
from autotune.core.errors import UsageError
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.driver_double import EmulatedDriver, emulated

FIELDS: dict[str, Any] = {"B": 1, "NH": 1, "T": 64, "dtype": "fp32"}
OPTIONS = ["--op", "softmax", "--B", "1", "--NH", "1", "--T", "64", "--dtype", "fp32", "--db", "/nonexistent/none.db"]

RAW = """==PROF== Connected to process 17 (/usr/bin/python3)
a line of the program, "quoted"
==PROF== Profiling "row_softmax" - 0: 0%....50%....100% - 9 passes
"ID","Process ID","Kernel Name","Block Size","gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active","dram__bytes.sum","launch__registers_per_thread","smsp__inst_executed.sum"
"","","","","ns","%","byte","register/thread","inst"
"0","17","row_softmax","(128, 1, 1)","3,456","48.25","1,234,567","64","12,000"
"1","17","combine","(32, 1, 1)","1,000","n/a","0","16","nan"
"""  # noqa: E501 - as ncu prints it

DETAILS = """==PROF== Disconnected
"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","row_softmax","GPU Speed Of Light Throughput","Duration","us","3.46"
"0","row_softmax","Occupancy","Achieved Occupancy","%","48.25"
"0","row_softmax","Occupancy","","",""
"1","combine","GPU Speed Of Light Throughput","Duration","us","1.00"
"""


def test_the_raw_page_is_read() -> None:
    first, second = parse_profile(RAW, "x").kernels
    assert (first.name, second.name) == ("row_softmax", "combine")
    assert {name: m.number for name, m in first.figures().items()} == {
        "time": 3456.0, "DRAM bytes": 1234567.0, "achieved occupancy": 48.25, "registers": 64.0,
    }  # fmt: skip
    assert [str(first.figures()[name]) for name in ("time", "achieved occupancy", "registers")] == [
        "3.456 µs", "48.25 %", "64",
    ]  # fmt: skip
    assert first.metrics["smsp__inst_executed.sum"].number == 12000.0
    assert (second.metrics["smsp__inst_executed.sum"].number, str(second.figures()["achieved occupancy"])) == (
        None,
        "n/a",
    )


def test_the_page_of_details_is_read() -> None:
    first, second = parse_profile(DETAILS, "x").kernels
    assert {name: str(m) for name, m in first.figures().items()} == {"time": "3.46 us", "achieved occupancy": "48.25 %"}
    assert {name: m.number for name, m in second.figures().items()} == {"time": 1.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no table of ncu's"),
        ("==ERROR== Failed to load\n", "has no table of ncu's .*: ==ERROR== Failed to load"),
        ('"ID","Name"\n"0","x"\n', 'no column "Kernel Name"'),
        (RAW.partition('"0","17"')[0], "no kernel in it"),
    ],
)
def test_what_is_no_table_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_profile(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="cannot read"):
        read_profile(tmp_path / "b.csv")


def test_a_task_is_text_and_back() -> None:
    task = ProfileTask("forward", "mine", {"T": 64, "causal": True}, {"MODE": "a'b", "N": 4}, 1, "/x/mine.cu.j2")
    assert ProfileTask.read(task.text()) == task


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", *OPTIONS, "--device", "h200", "--print-command", "--level", "full", "--ncu", "my ncu"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[0] == "my ncu"
    assert words[words.index("--set") + 1] == "full"
    assert {"--csv", "--page", "raw"} <= set(words)
    assert words[-4:-1] == [sys.executable, "-m", "autotune.answers.profiling"]
    task, found = (
        ProfileTask.read(words[-1]),
        autotune.best("softmax", device="h200", db="/nonexistent/none.db", **FIELDS),
    )
    assert (task.op, task.family, task.config) == ("softmax", found.candidate.template, found.config)
    assert (task.fields, task.file) == (found.problem.fields, None)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(profiling, "present_gpu", lambda index: None)
    assert run(["profile", *OPTIONS]) == 4
    assert "profiling needs an NVIDIA GPU, and there is none here; --print-command" in capsys.readouterr().err


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gpu("h200")
    monkeypatch.setattr("autotune.gpus.present.present_gpu", lambda index=0: spec)
    monkeypatch.setattr(profiling, "present_gpu", lambda index: spec)


@pytest.mark.usefixtures("h200")
def test_what_is_profiled_is_what_was_looked_up() -> None:
    """The program that ncu looks at, with an emulated driver behind it."""
    driver = EmulatedDriver()
    task = task_of(autotune.best("softmax", device="h200", db="/nonexistent/none.db", **FIELDS), 0)
    kernel = emulated(kernel_of(ProfileTask.read(task.text()), driver), driver)  # type: ignore[arg-type]
    assert kernel.best.config == task.config
    op = get_op("softmax")
    inputs = op.inputs(kernel.best.problem, 0)
    for name, array in launch(kernel).items():
        np.testing.assert_allclose(array, op.reference(kernel.best.problem, inputs)[name], atol=2e-5)
    assert [name for name, _ in driver.launched] == [step.kernel for step in kernel.best.plan.launches]


@pytest.mark.usefixtures("h200")
def test_a_kernel_of_ones_own_is_profiled_without_its_reference() -> None:
    path, driver = Path(__file__).parents[2] / "examples" / "softmax" / "softmax.cu.j2", EmulatedDriver()
    found = autotune.best(
        template=path,
        reference="softmax_reference:row_softmax",
        device="h200",
        db="/nonexistent/none.db",
        rows=3,
        cols=40,
    )
    task = ProfileTask.read(task_of(found, 0).text())
    assert (task.file, task.reference) == (str(path), None)
    kernel = emulated(kernel_of(task, driver), driver)  # type: ignore[arg-type]
    np.testing.assert_allclose(launch(kernel)["y"].sum(axis=1), np.ones(3), atol=1e-5)


def fake_ncu(folder: Path, printed: str, code: int = 0) -> Path:
    path = folder / "ncu"
    (folder / "printed.txt").write_text(printed)
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nfrom pathlib import Path\nhere = Path(__file__).parent\n"
        "(here / 'asked.json').write_text(json.dumps(sys.argv[1:]))\n"
        f"print((here / 'printed.txt').read_text())\nsys.exit({code})\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("h200")
def test_the_command_is_run_and_its_table_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ncu, output = fake_ncu(tmp_path, RAW), tmp_path / "counters.csv"
    assert run(["profile", *OPTIONS, "--device", "cuda", "--ncu", str(ncu), "-o", str(output)]) == 0
    said = capsys.readouterr().out
    assert "3.456 µs" in said
    assert f"next: autotune report --ncu {output}" in said
    found = autotune.best("softmax", device="h200", db="/nonexistent/none.db", **FIELDS)
    assert json.loads((tmp_path / "asked.json").read_text()) == ncu_command(task_of(found, 0), "", "detailed")[1:]
    kept = read_profile(output)
    assert kept.kernels == parse_profile(RAW, "x").kernels
    assert kept.about == {
        "candidate": found.candidate.key, "problem": found.problem.key, "device": "h200",
        "source_hash": found.source.hash,
    }  # fmt: skip
    assert output.read_text().startswith(MARK)
    assert run(["profile", *OPTIONS, "--device", "cuda", "--ncu", str(ncu), "-o", str(output), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kernels"][0]["metrics"]["gpu__time_duration.sum"] == 3456.0
    assert data["kernels"][1]["metrics"]["smsp__inst_executed.sum"] is None


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(
    ("printed", "code", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", 1, "may not read the GPU's performance counters"),
        (
            "==ERROR== The application returned an error code (1).\nerror: out of memory",
            1,
            "exit code 1: .*out of memory",
        ),
        ("==WARNING== No kernels were profiled.", 0, "ncu saw no kernel: ==WARNING== No kernels were profiled."),
    ],
)
def test_failures_of_ncu(
    printed: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ncu, output = fake_ncu(tmp_path, printed, code), tmp_path / "counters.csv"
    assert run(["profile", *OPTIONS, "--device", "cuda", "--ncu", str(ncu), "-o", str(output)]) == 1
    assert re.search(said, capsys.readouterr().err)
    assert not output.exists()


@pytest.mark.usefixtures("h200")
def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert run(["profile", *OPTIONS, "--device", "cuda"]) == 1
    assert "Nsight Compute (ncu) is not on the PATH, nor under CUDA_HOME" in capsys.readouterr().err
    assert run(["profile", *OPTIONS, "--device", "cuda", "--ncu", str(tmp_path / "no")]) == 1
    assert "is no program" in capsys.readouterr().err
    other = replace(gpu("h200"), name="other", title="Other")
    monkeypatch.setattr(profiling, "present_gpu", lambda index: other)
    ncu = fake_ncu(tmp_path, RAW)
    assert run(["profile", *OPTIONS, "--device", "h200", "--ncu", str(ncu)]) == 4
    assert "the GPU here is Other, and what was looked up is for NVIDIA H200" in capsys.readouterr().err
