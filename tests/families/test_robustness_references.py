"""Whatever a user's reference does is said as its author's mistake."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.core.errors import UsageError
from autotune.families.template import load_template
from autotune.families.user_functions import load_function
from autotune.families.user_op import CustomOp

TEMPLATE = Path(__file__).parents[2] / "examples" / "softmax" / "softmax.cu.j2"


def raises(*_: Any) -> Any:
    raise KeyError("boom")


def leaves(*_: Any) -> Any:
    sys.exit(0)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (raises, r"raised KeyError: 'boom', test_robustness_references\.py, line \d+"),
        (leaves, "raised SystemExit: 0"),
        (lambda *_: None, r"must return y with shape \(4, 8\), got \(\)"),
        (lambda *_: {"z": 1}, r"got \['z'\]"),
        (lambda *_: np.full((4, 8), "a"), "something else than numbers"),
        (lambda *_: np.full((4, 8), np.nan), "returns NaN in y"),
    ],
)
def test_a_reference_that_is_wrong(reference: Callable[..., Any], message: str) -> None:
    op = CustomOp(load_template(TEMPLATE), reference)
    problem = op.problem(rows=4, cols=8)
    with pytest.raises(UsageError, match=message):
        op.reference(problem, op.inputs(problem, 0))


@pytest.mark.parametrize("text", ["raise RuntimeError('early')", "import sys; sys.exit(3)", "1 / 0", "def ("])
def test_a_module_that_fails_when_it_is_imported(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    name = f"failing_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_function(f"{name}:f", tmp_path)


@pytest.mark.parametrize("text", ["..up:f", ".here:f"])
def test_relative_names(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_function(text, tmp_path)
