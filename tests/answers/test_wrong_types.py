"""Arguments of a wrong type: one line says what is wanted, whichever function they are given to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.core.errors import UsageError

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "T": 40, "HS": 32, "dtype": "fp32"}


@pytest.mark.parametrize("ask", [autotune.best, autotune.kernel])
@pytest.mark.parametrize("wrong", [3, 0, 1.5, b"a", ["a"], {"a": 1}])
@pytest.mark.parametrize(
    ("name", "said"),
    [("op", "unknown op .*; known: forward"), ("device", "is no device's name"), ("db", "neither the path of a data")],
)
def test_what_is_no_text(ask: Any, name: str, wrong: Any, said: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"op": "forward", "device": "cpu", "db": tmp_path / "none.db", name: wrong}
    with pytest.raises(UsageError, match=said) as caught:
        ask(**given, **FIELDS)
    assert repr(wrong) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [4, None, 0, ["time"], b"time"])
def test_objectives(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"objective .* is none; choose from time \| energy"):
        autotune.best("forward", device="h200", db=tmp_path / "none.db", objective=wrong, **FIELDS)


@pytest.mark.parametrize("wrong", ["a", "0.5", [0.5], 0, -1, float("nan"), 1j])
def test_errors(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"max_error=.* must be a number, and more than 0"):
        autotune.best("forward", device="h200", db=tmp_path / "none.db", max_error=wrong, **FIELDS)


def test_arrays_by_position(tmp_path: Path) -> None:
    kernel = autotune.kernel("forward", device="cpu", db=tmp_path / "none.db", **FIELDS)
    array = np.zeros((1, 2, 40, 32), np.float32)
    with pytest.raises(UsageError, match=r"give arrays by name: kernel\(q=\.\.\., k=\.\.\., v=\.\.\.\)"):
        kernel(array, array, array)
    with pytest.raises(UsageError, match="give arrays by name"):
        kernel(array, k=array, v=array)


def test_a_shape_is_said_once(tmp_path: Path) -> None:
    kernel = autotune.kernel("forward", device="cpu", db=tmp_path / "none.db", **FIELDS)
    right, wrong = np.zeros((1, 2, 40, 32), np.float32), np.zeros((1, 2, 40, 16), np.float32)
    for name in ("q", "k", "v"):
        with pytest.raises(UsageError) as caught:
            kernel(**{**dict.fromkeys(("q", "k", "v"), right), name: wrong})
        assert str(caught.value).startswith(
            f"{name} has shape (1, 2, 40, 16); the kernel takes (1, 2, 40, 32) with B=1"
        )
        assert str(caught.value).count("(1, 2, 40, 32)") == 1
