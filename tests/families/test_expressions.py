"""Expressions: values, arrays, and what the sandbox refuses."""

import itertools

import numpy as np
import pytest

from autotune.core.errors import ExpressionError
from autotune.families.expressions import Expression
from autotune.gpus.known import gpu

TEXTS = [
    "a * 2 + b",
    "ceil_div(a, b) * b",
    "a if a > b else b",
    "a in [1, 3]",
    "a not in [1, 3]",
    "1 < a <= 3",
    "a and b",
    "a or b",
    "not (a == b)",
    "min(a, b, 2) + max(a, 1)",
    "-a // b",
    "a % b == 1 or b != 2",
    "next_pow2(a) + log2(2)",
    "dtype in ['fp16', 'bf16'] and sizeof(dtype) * a <= 4",
    "sizeof(dtype) + a",
    "(a | int) + b",  # a filter: no array form, falls back to one element at a time
    "device.compute_capability >= 80 and a < device.sm_count",
]
VALUES = (1, 2, 3, 4)


@pytest.mark.parametrize("text", TEXTS)
def test_arrays_agree_with_single_values(text: str) -> None:
    fixed = {"dtype": "fp16", "device": gpu("h200")}
    grid = Expression(text).over(
        {"a": np.array(VALUES).reshape(4, 1), "b": np.array(VALUES).reshape(1, 4), **fixed},
    )
    grid = np.broadcast_to(grid, (4, 4))
    for (i, a), (j, b) in itertools.product(enumerate(VALUES), repeat=2):
        assert grid[i, j] == Expression(text)({"a": a, "b": b, **fixed}), (a, b)


@pytest.mark.parametrize(
    "text",
    [
        "''.__class__.__mro__",
        "a.__class__",
        "[].__init__.__globals__",
        "cycler.__init__.__globals__",
        "lipsum",
        "self",
        "range(10)",
        "2 ** 100000",
        "'x' * 1000000",
        "[1] * 1000000",
        "b + 1",
        "b",
        "a / 0",
        "a + 'text'",
        "log2(3)",
        "sizeof('int4')",
        "device.no_such_limit",
    ],
)
def test_refused_for_values_and_arrays(text: str) -> None:
    device = gpu("h200")
    with pytest.raises(ExpressionError):
        Expression(text)({"a": 3, "device": device})
    with pytest.raises(ExpressionError):
        Expression(text).over({"a": np.array([3, 3]), "device": device})


def test_a_syntax_error_names_the_text() -> None:
    with pytest.raises(ExpressionError, match=r"cannot parse the expression 'a \+'"):
        Expression("a +")


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ExpressionError, match=r"'BLOCK' is undefined; known: BLOCK_M, T"):
        Expression("BLOCK * 2")({"BLOCK_M": 1, "T": 2})


def test_names_are_what_the_expression_reads() -> None:
    assert Expression("ceil_div(T, BLOCK_M) + device.sm_count").names == {"T", "BLOCK_M", "device"}
