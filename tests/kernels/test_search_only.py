"""Constraints of the search alone (`search_only`): kernels that break them compute the same."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.every_family import FAMILIES, name_of
from tests.kernels.attention_cases import SPEC, verdict

_SEARCHED: dict[str, Value] = {
    "B": 8,
    "NH": 24,
    "NH_kv": 24,
    "T": 1100,
    "T_kv": 1100,
    "HS": 64,
    "dtype": "fp16",
    "causal": True,
}
_CALLED: dict[str, Value] = {**_SEARCHED, "B": 1, "NH": 2, "NH_kv": 2, "T": 70, "T_kv": 70}
_LARGER: dict[str, Value] = {**_SEARCHED, "B": 4, "NH": 12, "NH_kv": 12, "T": 200, "T_kv": 300}
_FEW: dict[str, Value] = {**_SEARCHED, "B": 1, "NH": 2, "NH_kv": 2}
_MANY: dict[str, Value] = {**_LARGER, "T_kv": 1100}
_PAIRS = ((_SEARCHED, _CALLED), (_CALLED, _LARGER), (_FEW, _CALLED), (_FEW, _MANY))
_LOOSE = tuple(
    (family, number)
    for family in FAMILIES
    for number, constraint in enumerate(family.front.constraints)
    if constraint.search_only
)


def found_and_called(family: Template, number: int) -> tuple[Config, Problem]:
    """A configuration of a searched problem that breaks this constraint alone on the one it is called with: a smaller
    one, or, where blocks would be too few, a larger one."""
    dtype = "fp32" if family.name.endswith("tf32x3") else "fp16"
    random = np.random.default_rng(0)
    problems = [[get_op(family.op).problem(**{**fields, "dtype": dtype}) for fields in pair] for pair in _PAIRS]
    spaces = [[Space(family, problem, SPEC) for problem in pair] for pair in problems]
    for _ in range(4000):
        for (_, called), (space, other) in zip(problems, spaces, strict=True):
            config = space.sample(random)
            namespace = other.namespace(config)
            broken = [place for place, c in enumerate(family.front.constraints) if not c.expr(namespace)]
            if broken == [number]:
                assert other.why_not(config) is not None
                assert other.why_not(config, called=True) is None
                return config, called
    raise AssertionError(f"{name_of(family)}: no configuration breaks this constraint alone")


def test_there_are_some() -> None:
    assert {name_of(family) for family, _ in _LOOSE} >= {"forward-flash_wgmma", "backward-flash_wgmma"}


@pytest.mark.parametrize(("family", "number"), _LOOSE, ids=[f"{name_of(f)}-{n}" for f, n in _LOOSE])
def test_what_only_the_search_leaves_out_is_right(family: Template, number: int, cache: BuildCache) -> None:
    """A launcher does not refuse it (`autotune.answers.export_launcher`), so it must be right."""
    config, called = found_and_called(family, number)
    found = verdict(family, called, config, cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")
