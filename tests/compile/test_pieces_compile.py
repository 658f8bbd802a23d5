"""Every family of `matmul`, `softmax` and `softmax_backward` compiles without a warning; defaults do not spill."""

from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.test_forward_compiles import GPU_OF, compile_strictly

FAMILIES = tuple(family for op in ("matmul", "softmax", "softmax_backward") for family in builtin_templates(op))
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[f"{f.op}-{f.name}" for f in FAMILIES])

MATMUL_TURNS = (("nt", "none"), ("nn", "a_lower"), ("tn", "a_upper"), ("tt", "none"), ("nt", "c_lower"))
CASES = [
    (family, arch, turn)
    for family in FAMILIES
    for turn, arch in enumerate(ARCHITECTURES)
    if family.op == "matmul" or turn % 2 == FAMILIES.index(family) % 2
]


def problem_of(family: Template, turn: int) -> Problem:
    """dtype, layout and masks change with the architecture."""
    op = get_op(family.op)
    dtype = ("fp16", "fp32", "bf16")[turn % 3] if family.name != "mma" else ("fp16", "bf16")[min(turn, 1)]
    if family.op != "matmul":
        return op.problem(dtype=dtype, causal=turn % 4 < 2)
    layout, mask = MATMUL_TURNS[turn % 5]
    return op.problem(dtype=dtype, layout=layout, mask=mask)


@pytest.mark.parametrize(
    ("family", "arch", "turn"), CASES, ids=[f"{family.op}-{family.name}-{arch}" for family, arch, _ in CASES]
)
def test_compiles_without_warnings(family: Template, arch: str, turn: int, tmp_path: Path) -> None:
    spec = gpu(GPU_OF[arch])
    problem = problem_of(family, turn)
    assert family.why_unsupported(problem, spec) is None
    config = Space(family, problem, spec).sample(np.random.default_rng(turn))
    assert compile_strictly(render(family, problem, config, spec), arch, tmp_path) == ""


DEFAULTS = list(zip(FAMILIES, cycle(("fp16", "bf16")), strict=False))
DEFAULTS += [(family, "fp32") for family in FAMILIES if family.name in ("simt", "warp_per_row", "row_sum")]


@pytest.mark.parametrize(("family", "dtype"), DEFAULTS, ids=[f"{f.op}-{f.name}-{dtype}" for f, dtype in DEFAULTS])
def test_what_is_tried_first_does_not_spill(family: Template, dtype: str, tmp_path: Path) -> None:
    spec = gpu("h200")
    problem = get_op(family.op).problem(dtype=dtype)
    for config in Space(family, problem, spec).starts():
        source = render(family, problem, config, spec)
        (report,) = build_cubin(source, spec.arch, BuildCache(tmp_path)).kernels
        assert (report.kernel, report.spill_bytes, report.stack_bytes) == (source.plan.kernels[0], 0, 0), config


@each_family
def test_every_problem_has_configurations(family: Template) -> None:
    """On the smallest and the largest GPU, however small or odd the shape."""
    sizes = ("M", "N", "K") if family.op == "matmul" else ("T", "T_kv")
    for name in ("t4", "h200"):
        for length in (1, 13, 1000):
            problem = get_op(family.op).problem(dtype="fp16", **dict.fromkeys(sizes, length))
            assert family.why_unsupported(problem, gpu(name)) is None
            assert Space(family, problem, gpu(name)).size > 50
