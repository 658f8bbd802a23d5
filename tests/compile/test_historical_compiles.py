"""The forward families of the ladder, and `permute`, compile without a warning for every architecture."""

from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.test_forward_compiles import DTYPES, GPU_OF, compile_strictly

FAMILIES = (
    *(find_template("forward", name) for name in ("naive", "minimal_flash", "warp_per_query")),
    find_template("permute", "copy"),
)
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


def problem_of(family: Template, turn: int) -> Problem:
    """dtype, head size and mask change with the architecture."""
    mask = {"causal": turn % 2 == 0} if family.op == "forward" else {}
    return get_op(family.op).problem(HS=(64, 40, 96, 128)[turn % 4], dtype=DTYPES[turn % 3], **mask)


@each_family
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_without_warnings(family: Template, arch: str, tmp_path: Path) -> None:
    turn = ARCHITECTURES.index(arch)
    problem, spec = problem_of(family, turn), gpu(GPU_OF[arch])
    assert family.why_unsupported(problem, spec) is None
    config = Space(family, problem, spec).sample(np.random.default_rng(turn))
    assert compile_strictly(render(family, problem, config, spec), arch, tmp_path) == ""


@each_family
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_tried_first_does_not_spill(family: Template, dtype: str, tmp_path: Path) -> None:
    spec = gpu("h200")
    problem = get_op(family.op).problem(dtype=dtype)
    for config in Space(family, problem, spec).starts():
        source = render(family, problem, config, spec)
        artifact = build_cubin(source, spec.arch, BuildCache(tmp_path))
        assert {report.kernel for report in artifact.kernels} == set(source.plan.kernels)
        for report in artifact.kernels:
            assert (report.spill_bytes, report.stack_bytes) == (0, 0), (report.kernel, config)
