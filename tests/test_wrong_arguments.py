"""Every parameter of every public function, given what is of another type or makes no sense: one line says which."""

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.core.errors import UsageError

THING = object()
WRONG = ("a", -1, 0, 2.5, math.nan, math.inf, None, [1], {"a": 1}, b"a", 1j, True, THING, print)
FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "T": 40, "HS": 32, "dtype": "fp32"}
COMMON: dict[str, Any] = {"op": "forward", "device": "cpu", **FIELDS}

# What is needed besides, so that nothing long runs where a value is taken.
CALLS: dict[str, dict[str, Any]] = {
    "best": COMMON,
    "check": COMMON | {"hints": False, "estimate": False, "blocks": 1, "template": "warp_per_query"},
    "export": COMMON | {"output": "x.cu"},
    "kernel": COMMON,
    "search": COMMON,
}

NUMBERS = {
    "trials": (True, 1), "jobs": (True, 1), "blocks": (True, 1), "clock": (True, 1), "power_limit": (True, 1),
    "seed": (True, 0), "B": (True, 1), "T": (True, 1),
    "timeout": (False, 0), "max_error": (False, 0), "limit_s": (False, 0), "energy_seconds": (False, 0.2),
}  # fmt: skip
"""Whether it is a whole number, and the least (of others: what it must exceed)."""

FLAGS = {"spills", "quick", "full_precision", "main", "hints", "estimate"}
TEXTS = {"op", "device", "target", "sampler", "objective", "tune", "format", "dtype", "layout", "mode"}
PATHS = {"db", "output"}
FUNCTIONS = {"reference", "inputs", "progress"}
OPTIONAL = {"op", "device", "target", "tune", "db", "output", "template", "params", "reference", "inputs", "progress"}
OPTIONAL |= {"trials", "timeout", "jobs", "max_error", "energy_seconds", "clock", "power_limit", "blocks"}


def is_right(function: str, name: str, value: Any) -> bool:
    """Whether a value of `WRONG` is one that may be given for a parameter, as its documentation has it."""
    if value is None:
        return name in OPTIONAL and (function, name) != ("search", "template")
    if name in NUMBERS:
        return is_right_number(*NUMBERS[name], value)
    if name in FLAGS or name == "causal":
        return value is True or value == 0
    if name in FUNCTIONS:
        return callable(value) or (isinstance(value, str) and name != "progress")
    return name in PATHS and isinstance(value, str)


def is_right_number(whole: bool, least: float, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return value >= least and value == int(value) if whole else value > least


def parameters() -> Iterator[tuple[str, str]]:
    for function in CALLS:
        for parameter in inspect.signature(getattr(autotune, function)).parameters.values():
            fields = ("B", "T", "dtype", "causal")
            for name in fields if parameter.kind is parameter.VAR_KEYWORD else (parameter.name,):
                yield function, name


def test_all_public_functions_are_called() -> None:
    public = {name for name in autotune.__all__ if inspect.isfunction(getattr(autotune, name))}
    assert public == set(CALLS)
    known = NUMBERS.keys() | FLAGS | TEXTS | PATHS | FUNCTIONS | {"template", "params", "causal"}
    assert {name for _, name in parameters()} <= known


@pytest.mark.parametrize(("function", "name"), list(parameters()))
def test_what_is_wrong_is_said(function: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in WRONG:
        if not is_right(function, name, wrong):
            said = refusal(getattr(autotune, function), {**CALLS[function], "db": tmp_path / "none.db", name: wrong})
            assert said is not None, f"{function}({name}={wrong!r}) is taken"
            assert "\n" not in said
            shown = {str(wrong), repr(wrong)} if name != "params" else {repr(wrong), "'a'", " a"}
            assert any(text in said for text in shown), f"{function}({name}={wrong!r}): {said}"
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".cu"]  # nothing was made on the way


def refusal(function: Callable[..., Any], given: dict[str, Any]) -> str | None:
    """What a call says to its arguments; None where it takes them."""
    try:
        function(**given)
    except UsageError as error:
        return str(error)
    return None


METHODS: list[tuple[Callable[..., Any], str]] = [
    (lambda kernel, seed: kernel.verify(seed), "seed"),
    (lambda kernel, name: kernel.shape(name), "name"),
    (lambda kernel, scale: kernel(**arrays(), scale=scale), "scale"),
    *((lambda kernel, q, name=name: kernel(**{**arrays(), name: q}), "array") for name in ("q", "k", "v", "out")),
]


def arrays() -> dict[str, Any]:
    return {name: np.zeros((1, 2, 40, 32), np.float32) for name in ("q", "k", "v")}


@pytest.mark.parametrize(("method", "what"), METHODS)
def test_methods_of_kernels(method: Callable[..., Any], what: str, tmp_path: Path) -> None:
    kernel = autotune.kernel(**COMMON, db=tmp_path / "none.db")
    for wrong in WRONG:
        right = {"seed": type(wrong) is int and wrong >= 0, "scale": wrong in (2.5, True)}
        if not right.get(what, False):
            said = refusal(lambda value=wrong: method(kernel, value), {})
            assert said is not None, f"{what}={wrong!r} is taken"
            assert "\n" not in said
            assert repr(wrong) in said or type(wrong).__name__ in said


@pytest.mark.parametrize("wrong", ["a", b"a", [1], {"a": 1}, 1j, print, THING])
@pytest.mark.parametrize("name", ["q", "k", "v", "causal", "scale"])
def test_attention_of_pytorch(name: str, wrong: Any) -> None:
    torch = pytest.importorskip("torch")
    from autotune.torch import attention

    given = {**{tensor: torch.zeros(1, 2, 40, 32) for tensor in ("q", "k", "v")}, name: wrong}
    said = refusal(attention, given)
    assert said is not None
    assert repr(wrong) in said or type(wrong).__name__ in said
