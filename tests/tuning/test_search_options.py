"""Problem options as texts: values, lists, sweeps."""

import pytest

from autotune.cli.options import AskedFields, field_products, parse_value
from autotune.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), (" -3 ", -3), ("0.5", 0.5), ("1e3", 1000.0), ("true", True), ("False", False), ("fp16", "fp16")],
)
def test_values(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_lists_and_repeats_make_products_in_order() -> None:
    given = {"T": ["512,1024", "2048"], "HS": None, "dtype": ["fp16"], "causal": False}
    choices = AskedFields(given, ["N=1,2"]).choices()
    assert choices == {"T": (512, 1024, 2048), "dtype": ("fp16",), "causal": (False,), "N": (1, 2)}
    problems = list(field_products(choices))
    assert len(problems) == 6
    assert problems[0] == {"T": 512, "dtype": "fp16", "causal": False, "N": 1}
    assert problems[-1] == {"T": 2048, "dtype": "fp16", "causal": False, "N": 2}


def test_no_option_is_one_problem_of_defaults() -> None:
    assert list(field_products(AskedFields({"T": None, "causal": None}).choices())) == [{}]


def test_a_value_given_twice_counts_once() -> None:
    assert AskedFields({"T": ["8,8", "8"]}).choices() == {"T": (8,)}


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ({"T": [""]}, [], "T needs a value"),
        ({"T": ["8,"]}, [], "T needs a value"),
        ({}, ["rows"], "NAME=VALUE, got 'rows'"),
        ({}, ["=3"], "NAME=VALUE"),
        ({"T": ["8"]}, ["T=9"], "T is given by --set and by its own option"),
    ],
)
def test_mistakes(options: dict[str, list[str]], settings: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AskedFields(options, settings).choices()


def test_one_problem_takes_no_lists() -> None:
    assert AskedFields({"T": ["64"]}, ["x=y"]).values() == {"T": 64, "x": "y"}
    with pytest.raises(UsageError, match="T has 2 values"):
        AskedFields({"T": ["64,128"]}).values()
