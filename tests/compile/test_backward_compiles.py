"""The plain backward families compile without a warning for every architecture, and their defaults do not spill."""

from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.test_forward_compiles import DTYPES, GPU_OF, compile_strictly

BACKWARD = get_op("backward")
FAMILIES = (find_template("backward", "flash_simt"), find_template("backward", "unfused"))
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


@each_family
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_without_warnings(family: Template, arch: str, tmp_path: Path) -> None:
    """A random configuration; dtype, head size and mask change with the architecture."""
    turn = ARCHITECTURES.index(arch)
    spec = gpu(GPU_OF[arch])
    assert spec.arch == arch
    HS, causal = (64, 32, 96, 40)[turn % 4], turn % 2 == 0
    problem = BACKWARD.problem(HS=HS, dtype=DTYPES[turn % 3], causal=causal)
    config = Space(family, problem, spec).sample(np.random.default_rng(turn))
    assert compile_strictly(render(family, problem, config, spec), arch, tmp_path) == ""


@pytest.mark.parametrize("accumulate", ["atomic", "in_place", "separate"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_every_way_of_dq_compiles(accumulate: str, prefetch: bool, tmp_path: Path) -> None:
    """Each renders other code."""
    family, spec = FAMILIES[0], gpu("h200")
    problem = BACKWARD.problem(dtype="fp32", HS=32)
    config = {**Space(family, problem, spec).default(), "DQ_ACCUMULATE": accumulate, "PREFETCH": prefetch}
    assert compile_strictly(render(family, problem, config, spec), spec.arch, tmp_path) == ""


@each_family
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_the_default_does_not_spill(family: Template, dtype: str, tmp_path: Path) -> None:
    spec = gpu("h200")
    problem = BACKWARD.problem(dtype=dtype)
    source = render(family, problem, Space(family, problem, spec).default(), spec)
    artifact = build_cubin(source, spec.arch, BuildCache(tmp_path))
    assert {report.kernel for report in artifact.kernels} == set(source.plan.kernels)
    for report in artifact.kernels:
        assert (report.spill_bytes, report.stack_bytes) == (0, 0), report.kernel
