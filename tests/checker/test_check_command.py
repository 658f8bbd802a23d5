"""`autotune check` and `autotune.check`: what they run, say and answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import autotune
from autotune.checker.check import Checked, check, check_all
from autotune.checker.target import find_target
from autotune.cli.main import run
from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.core.errors import BuildError, NoFeasibleConfiguration, UsageError
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import open_store
from autotune.trace.sampling import sample_blocks
from tests.store.store_records import H200, ok

HINTED = Path(__file__).with_name("hinted.cu.j2")
HOSTILE = Path(__file__).with_name("hostile.cu.j2")


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "own.db"))


def _line(source: str, mark: str = "// read") -> int:
    return next(number for number, text in enumerate(source.splitlines(), 1) if text.endswith(mark))


def test_a_hint_that_a_rerun_confirmed() -> None:
    checked = check(template=HINTED, estimate=False)
    assert checked.ok
    assert checked.source is not None
    (hint,) = checked.hints
    assert (hint.kernel, hint.line) == ("transpose", _line(checked.source.code))
    assert (hint.parameter, hint.value, hint.effect) == ("SMEM_PAD", 1, "removes")
    assert "32-way bank conflict, 94% of the passes through shared memory; SMEM_PAD=1 removes it" in str(hint)


def test_a_great_trouble_is_told_even_if_no_parameter_removes_it(tmp_path: Path) -> None:
    text = HINTED.read_text()
    values = "SMEM_PAD = [0, 1]"
    assert values in text
    (tmp_path / HINTED.name).write_text(text.replace(values, "SMEM_PAD = [0]"))
    (hint,) = check(template=tmp_path / HINTED.name, estimate=False).hints
    assert (hint.trouble, hint.effect, hint.value) == ("bank conflicts", "remains", 0)
    at = _line(text)
    assert str(hint) == (
        f"transpose, hinted.cu.j2:{at}: 32-way bank conflict, 94% of the passes through shared memory; "
        "no parameter that promises to change it has another valid value"
    )


def test_no_hint_where_nothing_can_be_gained() -> None:
    assert check(template=HINTED, params={"SMEM_PAD": 1}, estimate=False).hints == ()


def test_counters_are_of_all_blocks() -> None:
    checked = check(template=HINTED, N=256, hints=False, estimate=False, blocks=4)
    (kernel,) = checked.trace.kernels
    assert (kernel.blocks, len(kernel.traced)) == (64, 4)
    assert kernel.bytes_read == pytest.approx(256 * 256 * 4)
    assert kernel.bytes_written == pytest.approx(256 * 256 * 4)
    assert checked.compulsory_bytes == 2 * 256 * 256 * 4
    assert kernel.conflicts == pytest.approx(64 * 31 * 32)


def test_the_command_finds_a_race(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "check",
        "--template",
        str(HINTED),
        "--param",
        "FAULT=true",
        "--param",
        "SMEM_PAD=1",
        "--no-estimate",
    ]
    assert run(arguments) == 1
    said = capsys.readouterr().out
    assert "shared memory race: " in said
    assert "kernel transpose, hinted.cu.j2:" in said
    assert run([*arguments, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert {finding["kind"] for finding in data["findings"]} == {"shared memory race"}
    assert data["config"] == {"ROWS": 8, "SMEM_PAD": 1, "FAULT": True}


def test_the_command_says_what_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--template", str(HINTED), "--set", "N=96", "--target", "a100"]) == 0
    said = capsys.readouterr().out
    assert "nothing found" in said
    assert "ms on NVIDIA A100-SXM4-80GB by a model, not measured; shared memory-bound" in said
    assert "Estimated for hinted_transpose N=96" in said
    assert "transpose, work, traced blocks" in said
    assert "transpose: 6 of 9 blocks" in said
    assert "hint: transpose, hinted.cu.j2:" in said


def test_what_an_estimate_tells() -> None:
    """256 threads of few registers and 4 KB of shared memory: as many warps as there can be."""
    checked = check(template=HINTED, hints=False, device="h200", N=2048)
    assert checked.estimated is not None
    data = checked.to_json()["estimate"]
    (kernel,), (launch,) = data["kernels"], data["launches"]
    assert (kernel["threads"], kernel["static_smem"], kernel["spill_bytes"]) == (256, 4096, 0)
    assert (kernel["blocks_per_sm"], kernel["limited_by"], kernel["occupancy"]) == (8, "threads", 1.0)
    assert (data["device"], data["title"], data["bound"]) == ("h200", "NVIDIA H200", launch["bound"])
    assert data["ms"] == checked.estimated.estimate.ms >= 1e3 * 2 * 2048**2 * 4 / 4.8e12
    assert data["method"].startswith("estimate")
    assert data["intensity"] == 0.0


def test_a_record_is_estimated_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem, family = get_op("permute").problem(B=1, NH=2, T=64), find_template("permute", "copy")
    space = Space(family, problem, gpu("h200"))
    with open_store(tmp_path / "own.db") as store:
        number = store.record(H200, problem, space.candidate(space.default()), "0" * 16, ok(1.0))
    assert run(["show", str(number), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"] is None
    assert run(["show", str(number), "--target", "a100", "--json"]) == 0
    estimate = json.loads(capsys.readouterr().out)["estimate"]
    (launch,), (kernel,) = estimate["launches"], estimate["kernels"]
    assert (estimate["device"], estimate["bound"], launch["kernel"]) == ("a100", "memory", kernel["kernel"])
    assert isinstance(launch["waiting"], bool)
    assert kernel["spill_bytes"] == 0
    assert run(["show", str(number), "--estimate"]) == 0
    said = capsys.readouterr().out
    assert "ms on NVIDIA H200 by a model, not measured; memory-bound" in said
    assert "occupancy" in said


def test_no_estimate_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: CubinRequest, cache: BuildCache) -> Artifact:
        raise BuildError(f"nvcc 1.0 does not compile for {request.arch}")

    monkeypatch.setattr(CubinRequest, "build", refuse)
    checked = check(template=HINTED, hints=False, device="t4")
    assert checked.ok
    assert checked.estimated is None
    assert checked.no_estimate == "nvcc 1.0 does not compile for sm_75"


def test_the_winner_is_checked_by_default() -> None:
    answer = autotune.best(T=64, B=1, NH=1)
    checked = autotune.check(T=64, B=1, NH=1, hints=False, estimate=False)
    assert checked.ok
    assert checked.candidate == answer.candidate


def test_constraints_are_asked_of_the_problem_and_not_of_the_smaller_one_that_is_executed() -> None:
    fields = {"B": 16, "NH": 16, "T": 1024, "HS": 128}
    target = find_target("backward", None, {"HEADS_AT_ONCE": 16}, None, "h200", None, fields)
    heads = target.candidate.config["HEADS_AT_ONCE"]
    assert isinstance(heads, int)
    assert target.executed.integer("B") * target.executed.integer("NH_kv") <= heads < 16 * 16
    assert Space(target.template, target.executed, target.spec).why_not(target.candidate.config) is not None


def test_all_of_a_space(capsys: pytest.CaptureFixture[str]) -> None:
    results = list(check_all(template=HINTED))
    assert len(results) == 8
    assert [result.ok for result in results] == [not result.candidate.config["FAULT"] for result in results]
    assert run(["check", "--template", str(HINTED), "--all", "--limit", "3", "--seed", "1"]) in {0, 1}
    assert "3 candidates checked" in capsys.readouterr().out


def test_wrong_requests() -> None:
    with pytest.raises(UsageError, match="no parameter WIDTH; it has ROWS, SMEM_PAD, FAULT"):
        check(template=HINTED, params={"WIDTH": 1})
    with pytest.raises(UsageError, match="ROWS=7 is not among"):
        check(template=HINTED, params={"ROWS": 7})
    assert run(["check", "--template", "no_such_family"]) == 2
    with pytest.raises(UsageError, match="blocks=0 must be at least 1"):
        check(template=HINTED, blocks=0)
    with pytest.raises(UsageError, match="limit=-1 must be at least 1"):
        list(check_all(template=HINTED, limit=-1))
    with pytest.raises(NoFeasibleConfiguration, match=r"flash_mma does not compute forward .* dtype=fp32"):
        check(template="flash_mma", dtype="fp32")


def test_blocks_are_sampled_at_ends_and_middle() -> None:
    assert sample_blocks((4, 1, 1), None) == (0, 1, 2, 3)
    assert sample_blocks((100, 1, 1), 3) == (0, 50, 99)
    assert sample_blocks((100, 1, 1), 5) == (0, 25, 50, 75, 99)
    assert len(sample_blocks((16, 4, 3), 6)) == 6
    assert {0, 16 * 4 * 3 - 1} <= set(sample_blocks((16, 4, 3), 6))


def test_what_kernels_do_to_their_process() -> None:
    """Killed, hung, trapped, fine: each is told, and the next one is not affected."""
    found = {checked.candidate.config["ENDS"]: checked for checked in check_all(template=HOSTILE, limit_s=8.0)}
    assert "tore its process down (exit status -9)" in found["killed"].error
    assert found["never"].error.startswith("the traced run took longer than the limit of 8 s: ")
    assert [finding.kind for finding in found["trapped"].findings] == ["crash"]
    assert "trap executed at hostile.cu.j2:" in found["trapped"].findings[0].detail
    assert [name for name, checked in found.items() if checked.ok] == ["well", "talking"]
    assert "illegal write at address 0x0" in found["lost"].findings[0].detail
    assert "integer division by zero" in found["divided"].findings[0].detail
    assert [found[name].findings[0].thread for name in ("lost", "divided")] == [(3, 0, 0), (5, 0, 0)]
    for name in ("trapped", "lost", "divided"):
        source, (finding,) = found[name].source, found[name].findings
        assert source is not None
        assert finding.line == _line(source.code, f"// {name}")


def test_what_a_kernel_prints_is_no_part_of_the_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--template", str(HOSTILE), "--param", "ENDS=talking", "--no-estimate", "--json"]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["ok"]
    assert "a kernel talks" in said.err


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """The process that traces does not run the program that asks once more."""
    script = tmp_path / "script.py"
    script.write_text(f"import autotune\nprint(autotune.check(template={str(HINTED)!r}, N=96, estimate=False).ok)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_candidates_that_cannot_be_checked_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Seed 11 draws none that hangs, and one that kills its process."""
    assert run(["check", "--template", str(HOSTILE), "--all", "--limit", "4", "--seed", "11"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == ("3 candidates checked, 3 with findings, 1 could not be checked")


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_leaves_what_has_been_checked(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checked = next(check_all(template=HINTED))

    def interrupted(op: str | None, **arguments: object) -> Iterator[Checked]:
        yield checked
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["autotune.checker.check"], "check_all", interrupted)
    assert run(["check", "--all", *["--json"] * as_json]) == 130
    said = capsys.readouterr().out
    if as_json:
        assert [row["config"] for row in json.loads(said)] == [checked.candidate.config]
    else:
        assert said.splitlines()[-1] == "1 candidates checked, 0 with findings; interrupted"


def test_what_no_candidate_is_to_blame_for_ends_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "file"))
    assert run(["check", "--template", str(HINTED), "--all"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: cannot write the build cache {tmp_path / 'file'}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--all", "--param", "ROWS=8"), "--param names one configuration and --all takes every one"),
        (("--limit", "3"), "--limit 3 says how many configurations --all takes at most: add --all"),
    ],
)
def test_options_that_do_not_go_together(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", "--template", str(HINTED), *options]) == 2
    assert said in capsys.readouterr().err
