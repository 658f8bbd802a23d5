"""Where users see how a candidate multiplies and whether it repeats itself; families left out on request."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.answers.lookup import best
from autotune.cli import main as cli
from autotune.core.arithmetic import ARITHMETICS
from autotune.core.errors import NoFeasibleConfiguration
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template
from autotune.families.traits import traits_of, traits_of_record
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.tuning.choose import choose_subject

THREE = f"tf32x3 ({ARITHMETICS['tf32x3']})"
FIELDS: dict[str, Any] = {"T": 70, "HS": 64, "dtype": "fp32"}
A100 = gpu("a100")  # there are no shipped winners of it: families answer with their defaults

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, tmp_path: Path, *arguments: str) -> str:
    """What a command prints, asked for an fp32 problem on a GPU of which nothing is known."""
    problem = ["--T", "70", "--HS", "64", "--dtype", "fp32", "--device", "a100", "--db", str(tmp_path / "none.db")]
    assert cli.run([arguments[0], *problem, *arguments[1:]]) == 0
    return capsys.readouterr().out


def test_a_look_up_says_both(capsys: Capture, tmp_path: Path) -> None:
    printed = run(capsys, tmp_path, "best", "--template", "flash_tf32x3")
    assert f"arithmetic     {THREE}\n" in printed
    assert "deterministic  yes\n" in printed
    printed = run(capsys, tmp_path, "best", "--op", "backward", "--template", "flash_simt")
    assert "arithmetic" not in printed
    assert "deterministic  " in printed


def test_a_look_up_as_json(capsys: Capture, tmp_path: Path) -> None:
    found = json.loads(run(capsys, tmp_path, "best", "--json", "--template", "flash_tf32x3"))
    assert (found["arithmetic"], found["deterministic"]) == ("tf32x3", True)
    found = json.loads(run(capsys, tmp_path, "best", "--json", "--full-precision"))
    assert (found["template"], found["arithmetic"]) == ("flash_simt", "full")


def test_an_export_says_both(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "forward.cu"
    printed = run(capsys, tmp_path, "export", "--template", "flash_tf32x3", "-o", str(file))
    header = file.read_text()[:2000]
    assert f"\n// arithmetic:     {THREE}\n" in header
    assert "\n// deterministic:  yes\n" in header
    assert f"\narithmetic: {THREE}\n" in printed
    written = json.loads(run(capsys, tmp_path, "export", "--json", "--full-precision", "-o", str(file)))
    assert (written["template"], written["arithmetic"], written["deterministic"]) == ("flash_simt", "full", True)
    header = file.read_text()[:2000]
    assert "arithmetic:" not in header
    assert "\n// deterministic:  yes\n" in header


def test_answers_with_and_without_are_kept_apart(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"device": "a100", "db": tmp_path / "none.db", **FIELDS}
    names = [best(full_precision=full, **asked).candidate.template for full in (True, False, True)]
    assert names[0] == names[2] == "flash_simt"
    assert best(**asked).candidate.template == names[1]


def test_nothing_is_left_of_one_family(tmp_path: Path) -> None:
    with pytest.raises(
        NoFeasibleConfiguration, match=r"no family is left with full precision: flash_tf32x3 \(tf32x3\)"
    ):
        best(template="flash_tf32x3", full_precision=True, device="a100", db=tmp_path / "none.db", **FIELDS)
    with pytest.raises(NoFeasibleConfiguration, match="no family is left with full precision"):
        choose_subject("forward", ["flash_tf32x3"], full_precision=True)


def test_a_search_leaves_them_out() -> None:
    every, full = (
        {t.name for t in choose_subject("forward", full_precision=wanted).templates} for wanted in (False, True)
    )
    assert every - full == {"flash_tf32x3", "flash_wgmma_tf32x3"}
    assert "flash_simt" in full


def test_a_record_of_a_family_as_it_is_now() -> None:
    problem = get_op("backward").problem(**FIELDS)
    family = find_template("backward", "flash_simt")
    space = Space(family, problem, A100)
    found = {}
    for way in ("atomic", "separate"):
        candidate = space.candidate({**space.default(), "DQ_ACCUMULATE": way})
        traits = traits_of_record(problem, candidate, "cpu:a100")
        assert traits is not None
        found[way] = traits.deterministic
    assert found == {"atomic": False, "separate": True}


def test_a_record_of_a_family_that_has_changed() -> None:
    problem = get_op("backward").problem(**FIELDS)
    family = find_template("backward", "flash_simt")
    space = Space(family, problem, A100)
    candidate = space.candidate(space.default())
    assert traits_of_record(problem, candidate, "a100") is not None
    assert traits_of_record(problem, candidate, "unheard of") is None
    assert traits_of_record(problem, type(candidate)("flash_simt", "older", candidate.values), "a100") is None
    assert traits_of_record(problem, type(candidate)("gone", candidate.template_hash, candidate.values), "a100") is None


def test_a_problem_may_allow_tf32_itself() -> None:
    problem = get_op("matmul").problem(dtype="fp32", arithmetic="tf32")
    family = next(t for t in builtin_templates("matmul") if t.why_unsupported(problem, A100) is None)
    traits = traits_of(family, problem, Space(family, problem, A100).default(), A100)
    assert dict(traits.rows())["arithmetic"] == "tf32 (fp32 factors rounded to tf32, summed in fp32)"
