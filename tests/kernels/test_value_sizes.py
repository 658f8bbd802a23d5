"""Values of another head size than queries and keys, narrower and wider: every family, against float64."""

from collections.abc import Iterator
from typing import Any

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import OPERAND_DTYPES
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.ops.registry import get_op
from tests.every_family import families_of, home, name_of
from tests.kernels.attention_cases import verdict

SIZES = ((96, 40), (24, 72))
KINDS: tuple[dict[str, Any], ...] = (
    {"NH": 2, "NH_kv": 1, "T": 37, "T_kv": 50},
    {"NH": 2, "NH_kv": 2, "T": 43, "T_kv": 43, "causal": False, "layout": "packed"},
)


def problems(family: Template) -> Iterator[Problem]:
    """One of each kind, dtypes taking turns."""
    for turn, ((HS, HS_v), kind) in enumerate(zip(SIZES, KINDS, strict=True)):
        of_dtypes = (
            get_op(family.op).problem(B=1, HS=HS, HS_v=HS_v, dtype=OPERAND_DTYPES[(turn + i) % 3], **kind)
            for i in range(len(OPERAND_DTYPES))
        )
        yield from [p for p in of_dtypes if family.why_unsupported(p, home(family)) is None][
            :1
        ]  # a user's may take none


def cases() -> Iterator[Any]:
    for family in families_of("forward", "backward"):
        for problem in problems(family):
            sizes = f"{problem['HS']}-{problem['HS_v']}"
            yield pytest.param(family, problem, id=f"{name_of(family)}-{sizes}-{problem.dtype}")


@pytest.mark.parametrize(("family", "problem"), list(cases()))
def test_values_of_another_size(family: Template, problem: Problem, cache: BuildCache) -> None:
    found = verdict(family, problem, Space(family, problem, home(family)).starts()[0], cache, home(family))
    assert (found.outcome, found.message) == (Outcome.OK, "")


OTHER_WAYS: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("backward", "flash_wgmma", {"HS": 96, "HS_v": 40}, {"SPLIT": "gradients", "BLOCK_N": 64, "ORDER": "plain"}),
    ("backward", "flash_wgmma", {"HS": 40, "HS_v": 96}, {"DQ_ACCUMULATE": "separate", "ORDER": "plain"}),
    ("backward", "flash_mma", {"HS": 40, "HS_v": 96}, {"DQ_ACCUMULATE": "separate"}),
    ("backward", "flash_mma", {"HS": 96, "HS_v": 40}, {"WARPS_D": 2, "BLOCK_N": 64, "BLOCK_M": 64, "CHUNK": 32}),
    ("backward", "flash_tf32x3", {"HS": 40, "HS_v": 96}, {"DQ_ACCUMULATE": "separate"}),
    ("forward", "flash_mma", {"HS": 24, "HS_v": 96}, {"SPLIT": 2, "BLOCK_M": 64, "BLOCK_N": 32, "OVERLAP": 0}),
    ("forward", "flash_wgmma", {"HS": 96, "HS_v": 40}, {"OUT_APART": False, "PERSISTENT": False}),
)


@pytest.mark.parametrize(("op", "name", "sizes", "values"), OTHER_WAYS, ids=lambda x: x if isinstance(x, str) else None)
def test_other_ways_through_the_kernels(
    op: str, name: str, sizes: dict[str, Any], values: dict[str, Any], cache: BuildCache
) -> None:
    family = find_template(op, name)
    dtype = "fp32" if "fp32" in str(family.front.supports[0].needed) else "fp16"
    problem = get_op(op).problem(B=1, NH=2, NH_kv=1, T=37, T_kv=100, dtype=dtype, **sizes)
    space = Space(family, problem, home(family))
    config = {**space.starts()[0], **values}
    assert space.why_not(config) is None
    found = verdict(family, problem, config, cache, home(family))
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_sizes_of_models_have_kernels_on_tensor_cores(op: str, dtype: str) -> None:
    """DeepSeek's 192 with 128, and others: a configuration or more of each family that takes 16 bits."""
    for HS, HS_v in ((192, 128), (64, 128), (128, 64), (80, 96)):
        problem = get_op(op).problem(HS=HS, HS_v=HS_v, dtype=dtype)
        able = [f for f in families_of(op) if f.front.tensor_cores and f.why_unsupported(problem, home(f)) is None]
        sizes = {f.name: Space(f, problem, home(f)).size for f in able}
        assert sizes.keys() == {"flash_mma", "flash_wgmma", *(["flash_wgmma_queries"] if op == "backward" else [])}
        assert min(sizes.values()) > 10, (HS, HS_v, sizes)
