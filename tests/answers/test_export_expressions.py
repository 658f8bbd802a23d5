"""Expressions as C++: known parts computed, the shape left as names."""

from typing import Any

import pytest

from autotune.answers.export_expressions import Code, NotInCpp, largest, text, to_cpp
from autotune.core.errors import ExpressionError
from autotune.families.expressions import Expression
from autotune.gpus.known import gpu

NAMES: dict[str, Any] = {
    "B": Code("B"), "NH": Code("NH"), "T": Code("T"), "BLOCK": 64, "FIRST": True, "dtype": "fp16",
    "device": gpu("h200"), "ROWS": Code("B * NH", 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "cpp"),
    [
        ("BLOCK * 2", "128"),
        ("FIRST and BLOCK == 64", "true"),
        ("0.5 * BLOCK", "32.0f"),
        ("device.sm_count", "132"),
        ("ceil_div(T, BLOCK)", "host::ceil_div(T, 64)"),
        ("ceil_div(B * NH * T, 256 // sizeof(dtype))", "host::ceil_div(B * NH * T, 128)"),
        ("B * NH if FIRST else ceil_div(T, BLOCK)", "B * NH"),
        ("B * (NH + T)", "B * (NH + T)"),
        ("(B + NH) * T", "(B + NH) * T"),
        ("T // (BLOCK * B)", "T / (64 * B)"),
        ("T // B // NH", "T / B / NH"),
        ("T - (B - NH)", "T - (B - NH)"),
        ("ROWS * T", "B * NH * T"),
        ("T // ROWS", "T / (B * NH)"),
        ("min(T, max(B, 8))", "std::min<long long>(T, std::max<long long>(B, 8))"),
        ("T % BLOCK == 0 and not FIRST", "false"),
        ("T % BLOCK == 0 and FIRST", "T % 64 == 0"),
        ("T > 1 or FIRST", "true"),
        ("(T > 1 or B > 1) and NH > 1", "(T > 1 || B > 1) && NH > 1"),
        ("1 * (T + 0) // 1", "T"),
        ("T % 1", "T % 1"),
        ("1 - (1 * T)", "1 - T"),
        ("not T > 1", "!(T > 1)"),
        ("T if T > B else B", "T > B ? T : B"),
        ("2 * (T if T > B else B)", "2 * (T > B ? T : B)"),
    ],
)
def test_translation(expression: str, cpp: str) -> None:
    assert text(to_cpp(Expression(expression), NAMES)) == cpp


@pytest.mark.parametrize(
    "expression", ["T / 2", "log2(T)", "T in [1, 2]", "T - -1", "-T", "T ** 2", "1 < T < 5", "T * 0.5", "T | abs"]
)
def test_no_cpp_form(expression: str) -> None:
    with pytest.raises(NotInCpp):
        to_cpp(Expression(expression), NAMES)


def test_known_parts_fail_as_expressions_do() -> None:
    with pytest.raises(ExpressionError, match="WARPS"):
        to_cpp(Expression("WARPS * 2"), NAMES)


def test_cpp_means_what_python_means() -> None:
    """The C++ text, read as Python, gives the same numbers."""
    expressions = ["ceil_div(B * NH * T, 48)", "T // (BLOCK * B)", "(T - B) // NH * 2", "T % (B + 1) + NH"]
    numbers = {"B": 3, "NH": 5, "T": 1000}
    helpers = {"ceil_div": lambda a, b: (a + b - 1) // b}
    for expression in expressions:
        cpp = text(to_cpp(Expression(expression), NAMES)).replace("/", "//").replace("host::", "")
        expected = Expression(expression)({**NAMES, **numbers})
        assert eval(cpp, helpers, dict(numbers)) == expected


def test_the_largest_of_sizes() -> None:
    assert largest([]) == 0
    assert largest([3, 7, 5]) == 7
    assert text(largest([Code("T")])) == "T"
    assert text(largest([3, Code("4 * T", 1), 5])) == "std::max<long long>(5, 4 * T)"
    assert text(largest([Code("T"), Code("B")])) == "std::max<long long>(T, B)"
