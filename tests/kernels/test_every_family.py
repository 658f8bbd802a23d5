"""Every family on the emulator against the float64 reference: dtypes, masks, layouts, awkward shapes, parameters."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.errors import ProblemError
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import BUILTIN, get_op
from tests.every_family import FAMILIES, HEAD_SIZES, Fields, each_family_of, fitted, home, name_of
from tests.kernels.attention_cases import covering, verdict
from tests.kernels.awkward_cases import CASES, WHOLE_SPACES

LENGTHS = ("T", "T_kv", "M", "N", "K", "NH", "NH_kv", "group")


def problems_of(family: Template, table: tuple[Fields, ...], turns: bool = True) -> dict[int, Problem]:
    """By their places in the table, what the family is run on; each once."""
    found = {i: fitted(family, fields, home(family), turn=turns * i) for i, fields in enumerate(table)}
    return {i: problem for i, problem in found.items() if problem and problem not in [found[j] for j in range(i)]}


def cases() -> Iterator[Any]:
    for family in FAMILIES:
        for i, problem in problems_of(family, CASES[family.op]).items():
            yield pytest.param(family, problem, i, id=f"{name_of(family)}-{i}-{told(problem)}")


def told(problem: Problem) -> str:
    """Numbers as they are, the rest by name, defaults of the op left out."""
    defaults = {field.name: field.default for field in get_op(problem.op).fields}
    return ",".join(f"{name}={value}" for name, value in problem.fields.items() if value != defaults[name])


def assert_right(family: Template, problem: Problem, config: Config, cache: BuildCache) -> None:
    found = verdict(family, problem, config, cache, home(family))
    assert (found.outcome, found.message) == (Outcome.OK, ""), (problem, config)


@pytest.mark.parametrize(("family", "problem", "turn"), list(cases()))
def test_every_case_is_right(family: Template, problem: Problem, turn: int, cache: BuildCache) -> None:
    assert_right(family, problem, chosen(Space(family, problem, home(family)), turn), cache)


def chosen(space: Space, turn: int) -> Config:
    """One of those that a search begins with, or a random one where the problem needs a build of its own anyway."""
    if space.problem.op in ("forward", "backward"):
        starts = space.starts()
        return starts[turn % len(starts)]
    return space.sample(np.random.default_rng(turn))


def spaces() -> Iterator[Any]:
    for family in FAMILIES:
        for i, problem in problems_of(family, WHOLE_SPACES[family.op], turns=False).items():
            if i and problem.dtype != WHOLE_SPACES[family.op][i].get("dtype", problem.dtype):
                continue  # the first one again, in other 16 bits
            yield pytest.param(family, problem, id=f"{name_of(family)}-{problem.dtype}")


@pytest.mark.parametrize(("family", "problem"), list(spaces()))
def test_every_parameter_value_is_right(family: Template, problem: Problem, cache: BuildCache) -> None:
    """Random configurations until each value of each parameter that the problem allows has been used."""
    for config in covering(Space(family, problem, home(family)), seed=3):
        assert_right(family, problem, config, cache)


def kinds(op: str) -> dict[str, tuple[Value, ...]]:
    """The op's fields that are chosen from a few values, with those values."""
    fields = get_op(op).fields
    return {f.name: f.choices if f.kind == "choice" else (True, False) for f in fields if f.kind in ("choice", "bool")}


@each_family_of()
def test_the_cases_have_every_dtype_mask_and_layout_that_the_family_supports(family: Template) -> None:
    problems = problems_of(family, CASES[family.op]).values()
    for name, values in kinds(family.op).items():
        asked = {value: fitted(family, {name: value}, home(family)) for value in values}
        has = {value for value, problem in asked.items() if problem is not None and problem[name] == value}
        assert has, name
        assert {problem[name] for problem in problems} >= has, name


@each_family_of()
def test_the_cases_have_every_awkward_shape(family: Template) -> None:
    """That the family supports, in whatever dtype and layout."""
    seen = {shape_of(problem.fields) for problem in problems_of(family, CASES[family.op]).values()}
    wanted = [fields for fields in CASES[family.op] if any_like(family, fields)]
    assert wanted
    assert seen >= {shape_of(get_op(family.op).problem(**fields).fields) for fields in wanted}


def shape_of(fields: Fields) -> tuple[Value, ...]:
    return tuple(fields[name] for name in LENGTHS if name in fields)


def any_like(family: Template, fields: Fields) -> bool:
    """Whether the family supports a problem of this shape."""
    op = get_op(family.op)
    choices = kinds(family.op) | ({"HS": HEAD_SIZES} if any(field.name == "HS" for field in op.fields) else {})
    for values in product(*choices.values()):
        with suppress(ProblemError):
            problem = op.problem(**{**fields, **dict(zip(choices, values, strict=True))})
            if family.why_unsupported(problem, home(family)) is None:
                return True
    return False


@pytest.mark.parametrize("op", BUILTIN)
def test_shapes_are_awkward(op: str) -> None:
    """One row, lengths that divide no tile; every choice that the op has occurs."""
    problems = [get_op(op).problem(**fields) for fields in CASES[op]]
    assert len(problems) >= 4
    lengths = {problem.integer("T" if "T" in problem.fields else "M") for problem in problems}
    assert 1 in lengths
    assert any(length % 2 for length in lengths if length > 1)
    for name, values in kinds(op).items():
        assert {problem[name] for problem in problems} == set(values), name
