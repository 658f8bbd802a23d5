"""The whole search on the emulator: the example op by command and by call, and attention."""

import importlib
import json
from pathlib import Path

import pytest
from sqlalchemy import text

import autotune
from autotune.cli.main import run
from autotune.core.measurement import Measurement
from autotune.core.model_version import DRIVER
from autotune.core.outcome import Outcome
from autotune.store import open_store
from autotune.tuning.events import Progress

EXAMPLE = Path(__file__).parents[2] / "examples" / "softmax"
TEMPLATE = str(EXAMPLE / "softmax.cu.j2")
REFERENCE = "softmax_reference:row_softmax"
SMALL = ["--set", "rows=8", "--set", "cols=64", "--device", "cpu"]
OWN = ["--template", TEMPLATE, "--reference", REFERENCE, *SMALL]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of its own; the build cache is the user's, so that equal kernels are built once."""
    path = tmp_path / "autotune.db"
    monkeypatch.setenv("AUTOTUNE_DB", str(path))
    for name in ("AUTOTUNE_DEVICE", "AUTOTUNE_TARGET"):
        monkeypatch.delenv(name, raising=False)
    return path


def test_the_command_on_an_op_of_ones_own(capsys: Capture, database: Path) -> None:
    assert run(["search", *OWN, "--trials", "3", "--seed", "1"]) == 0
    shown = capsys.readouterr()
    assert "row_softmax rows=8 cols=64 dtype=fp32 on NVIDIA H200" in shown.out
    assert "3 trials (ok 3)" in shown.out
    assert "times are ESTIMATES for NVIDIA H200" in shown.out
    assert f"recorded in {database}" in shown.out
    assert f"next: autotune export --op row_softmax --set rows=8 --set cols=64 --template {TEMPLATE}" in shown.out
    assert "times estimated for NVIDIA H200" in shown.err
    table = shown.out.splitlines()
    heading = next(line for line in table if "est. ms" in line)
    for column in ("family", "TFLOP/s", "GB/s", "error", "bound", "regs", "spills", "smem", "occupancy"):
        assert column in heading


def test_the_same_command_goes_on_and_then_has_nothing_to_do(capsys: Capture) -> None:
    for trials, resumed in (("2", 0), ("4", 2), ("4", 4)):
        assert run(["search", *OWN, "--trials", trials, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["trials"], data["resumed"]) == (int(trials), resumed)
    assert data["stopped"] == "trials"
    assert data["kind"] == data["best"]["measurement"]["timing"]["kind"] == "estimated"
    with open_store() as store:
        records = list(store.measurements())
    codes = [record.measurement.machine_code for record in records]
    assert all(code is not None and len(code) == 32 for code in codes)
    assert len(set(codes)) > 1
    assert len({record.candidate for record in records}) == len(records) == 4


def test_estimates_of_an_older_model_are_made_anew(capsys: Capture) -> None:
    command = ["search", *OWN, "--trials", "1", "--sampler", "random", "--json"]
    assert run(command) == 0
    first = json.loads(capsys.readouterr().out)["best"]
    with open_store() as store, store.write() as session:
        times = ", ".join(f"'$.timing.{name}_ms', 0.00001" for name in ("median", "q1", "q3", "min"))
        older = f"driver = 'estimates, model 1', ms = 0.00001, detail = json_set(detail, {times})"
        session.execute(text(f"UPDATE measurement SET {older}"))
    assert run(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["trials"], again["resumed"]) == (1, 0)
    assert again["best"]["ms"] == first["ms"]
    with open_store() as store:
        found = store.winner(next(store.measurements()).problem, "cpu:h200")
    assert found is not None
    assert (found.record.driver, found.record.measurement.ms) == (DRIVER, first["ms"])


def test_a_sweep_is_one_search_for_each_problem(capsys: Capture) -> None:
    arguments = ["--template", TEMPLATE, "--reference", REFERENCE, "--set", "rows=4,8", "--set", "cols=64"]
    assert run(["search", *arguments, "--device", "cpu", "--trials", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [result["problem"]["rows"] for result in data] == [4, 8]
    assert all(result["trials"] == 1 for result in data)


def test_the_call_on_an_op_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    row_softmax = importlib.import_module("softmax_reference").row_softmax
    seen: list[Progress] = []
    result = autotune.search(
        template=[TEMPLATE], reference=row_softmax, device="cpu", target="rtx4090", sampler="random", seed=3, trials=2,
        progress=seen.append, rows=8, cols=64,
    )  # fmt: skip
    assert result.device == "cpu:rtx4090"
    assert result.best is not None
    assert result.best.ms == min(ranked.ms for ranked in result.table)
    assert result.outcomes == {Outcome.OK: 2}
    assert seen[-1].phase == "done"
    assert seen[-1].trials == 2
    measurement = result.best.measurement
    assert Measurement.from_json(json.loads(json.dumps(measurement.to_json()))) == measurement


def test_attention_is_verified_on_a_reduced_problem_and_says_so() -> None:
    result = autotune.search("forward", B=2, NH=6, T=33, HS=32, template="flash_simt", device="cpu", trials=1)
    assert result.best is not None
    assert result.problem["NH"] == 6
    assert result.executed.integer("B") * result.executed.integer("NH") < 12
    verification = result.best.measurement.verification
    assert verification is not None
    assert verification.problem == result.executed.key
    assert result.executed.integer("T") == 33
    assert verification.units_checked == verification.units_total


def test_no_winner_is_exit_code_3(capsys: Capture) -> None:
    faults = Path(__file__).parent / "faults" / "greedy.cu.j2"
    code = run(
        ["search", "--template", str(faults), "--reference", "lower_half_reference:lower_half", "--device", "cpu"]
    )
    assert code == 3
    error = capsys.readouterr().err
    assert "300000 bytes of shared memory; NVIDIA H200 allows 232448" in error
    assert error.startswith("error: no configuration passes the constraints")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--op", "sideways"], 2, "unknown op 'sideways'"),
        (["--op", "forward", "--T", "0"], 2, "T=0 must be at least 1"),
        (["--op", "forward", "--template", "nothing_like_it"], 2, "no template 'nothing_like_it'"),
        (["--op", "forward", "--sampler", "luck"], 2, "unknown sampler 'luck'"),
        (["--op", "forward", "--timeout", "0"], 2, "timeout=0"),
        (["--op", "forward", "--device", "cpu", "--target", "gtx1"], 2, "gtx1"),
        (["--op", "forward", "--device", "cuda:77"], 4, "no NVIDIA GPU 77 here"),
        (["--op", "forward", "--reference", "a:b"], 2, "--reference goes with a template file"),
        (["--template", "missing.cu.j2"], 2, "cannot read the template missing.cu.j2"),
        (["--op", "backward", "--template", TEMPLATE], 2, "op 'backward' was asked for"),
    ],
)
def test_mistakes_are_one_line(capsys: Capture, arguments: list[str], code: int, message: str) -> None:
    assert run(["search", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    [line] = shown.err.splitlines()
    assert line.startswith("error: ")
    assert message in line
