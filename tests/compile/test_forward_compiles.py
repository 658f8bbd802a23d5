"""Every forward family compiles without a warning for every architecture, and its default does not spill."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, FLAGS, build_cubin
from autotune.compilers.toolchain import find_nvcc
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

FORWARD = get_op("forward")
GPU_OF = dict(zip(ARCHITECTURES, ("t4", "a100", "a10", "l4", "h200", "b200", "rtx5090"), strict=True))
DTYPES = ("fp16", "bf16", "fp32")
FAMILIES = tuple(template for template in builtin_templates("forward") if template.name in ("flash_simt", "unfused"))
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


def compile_strictly(source: KernelSource, arch: str, folder: Path) -> str:
    """What nvcc says when warnings are errors; empty but for ptxas' report when all is well."""
    for include in source.includes:
        path = folder / include.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(include.text)
    (folder / "kernel.cu").write_text(source.code)
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall", "-cubin", f"-arch={arch}", "-o", "kernel.cubin"]
    command = [str(find_nvcc(arch).path), *FLAGS, *strict, "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@each_family
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_without_warnings(family: Template, arch: str, tmp_path: Path) -> None:
    """A random configuration; dtype, head size and mask change with the architecture."""
    turn = ARCHITECTURES.index(arch)
    spec = gpu(GPU_OF[arch])
    assert spec.arch == arch
    HS, causal = (64, 32, 96, 128)[turn % 4], turn % 2 == 0
    problem = FORWARD.problem(HS=HS, dtype=DTYPES[turn % 3], causal=causal)
    config = Space(family, problem, spec).sample(np.random.default_rng(turn))
    assert compile_strictly(render(family, problem, config, spec), arch, tmp_path) == ""


@each_family
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_default_does_not_spill(family: Template, dtype: str, tmp_path: Path) -> None:
    spec = gpu("h200")
    problem = FORWARD.problem(dtype=dtype)
    source = render(family, problem, Space(family, problem, spec).default(), spec)
    artifact = build_cubin(source, spec.arch, BuildCache(tmp_path))
    assert {report.kernel for report in artifact.kernels} == set(source.plan.kernels)
    for report in artifact.kernels:
        assert (report.spill_bytes, report.stack_bytes) == (0, 0), report.kernel
