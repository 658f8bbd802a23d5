"""How sure an answer is that was timed for another problem, in words."""

import math
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.answers.best import sureness
from autotune.cli.main import run
from autotune.core.candidate import Candidate
from autotune.estimate.fit import Expected, Known
from tests.cli.calling import Capture, call


@pytest.mark.parametrize(
    ("distance", "alike", "said"),
    [
        (0.0, True, "likely: timed for a problem of the same lengths"),
        (2.0, True, "likely: timed for a problem 2.0 octaves away"),
        (2.1, True, "plausible: timed for a problem 2.1 octaves away"),
        (0.0, False, "plausible: timed for a problem of the same lengths, of another mask, layout or dtype"),
        (4.0, False, "plausible: timed for a problem 4.0 octaves away, of another mask, layout or dtype"),
        (4.1, True, "a guess: timed for a problem 4.1 octaves away"),
        (5.3, False, "a guess: timed for a problem 5.3 octaves away, of another mask, layout or dtype"),
        (math.inf, False, "a guess: nobody kept a time of this configuration"),
    ],
)
def test_trust_falls_with_distance(distance: float, alike: bool, said: str) -> None:
    known = Known(Candidate("family", "hash", (("BLOCK_M", 64),)), ms=1.0)
    assert sureness(Expected(known, 1.0, distance, alike, 1.0)) == said


@pytest.mark.parametrize(
    ("op", "fields", "device", "takes"),
    [
        ("forward", {"HS": 320, "dtype": "fp16"}, "h200", "HS=320"),
        ("forward", {"HS": 320, "HS_v": 128, "dtype": "bf16", "T": 70}, "h200", "HS=320 HS_v=128"),
        ("backward", {"HS": 264, "dtype": "bf16"}, "a100", "HS=264"),
        ("forward", {"dtype": "bf16"}, "t4", "bf16 on Tesla T4"),
    ],
)
def test_what_goes_without_tensor_cores_is_said(
    op: str, fields: dict[str, Any], device: str, takes: str, tmp_path: Path
) -> None:
    found = autotune.best(op, device=device, db=tmp_path / "none.db", **fields)
    assert not found.template.front.tensor_cores
    assert found.sure.split("; ")[-1] == f"without tensor cores: no family that uses them takes {takes}"


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("forward", {"HS": 256, "dtype": "fp16"}),
        ("forward", {"HS": 64, "dtype": "fp16", "template": "flash_simt"}),  # somebody's choice
        ("forward", {"HS": 320, "dtype": "fp32"}),  # as exactly as it is asked
        ("permute", {"HS": 320, "dtype": "fp16"}),  # multiplies nothing
    ],
)
def test_nothing_is_said_where_it_is_no_loss(op: str, fields: dict[str, Any], tmp_path: Path) -> None:
    assert "tensor cores" not in autotune.best(op, device="h200", db=tmp_path / "none.db", **fields).sure


def test_the_command_says_it_where_it_says_how_sure_it_is(tmp_path: Path, capsys: Capture) -> None:
    asked = ["best", "--op", "forward", "--HS", "320", "--device", "h200", "--db", str(tmp_path / "none.db")]
    said = "without tensor cores: no family that uses them takes HS=320"
    assert call(capsys, *asked)["sure"].endswith(said)
    assert run(asked) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("sure "))
    assert line.endswith(said)
