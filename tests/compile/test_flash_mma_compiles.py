"""The tensor core family of the forward pass compiles without a warning wherever it says it runs."""

from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.test_forward_compiles import GPU_OF, compile_strictly

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_mma")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_without_warnings(arch: str, tmp_path: Path) -> None:
    """The default, and a random configuration; dtype, head size and mask change with the architecture."""
    turn, spec = ARCHITECTURES.index(arch), gpu(GPU_OF[arch])
    HS, causal = (64, 128, 32, 96, 256, 192)[turn % 6], turn % 2 == 0
    problem = FORWARD.problem(HS=HS, dtype="bf16" if turn % 2 else "fp16", causal=causal)
    space = Space(FAMILY, problem, spec)
    for config in (space.default(), space.sample(np.random.default_rng(turn))):
        assert compile_strictly(render(FAMILY, problem, config, spec), arch, tmp_path) == "", config


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("HS", [64, 96, 128, 192, 256])
def test_suggestions_do_not_spill(HS: int, causal: bool, tmp_path: Path) -> None:
    """What the family begins with on an H200; dtypes take turns."""
    spec = gpu("h200")
    problem = FORWARD.problem(HS=HS, dtype="fp16" if causal else "bf16", causal=causal)
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    assert spilled(source, spec.arch, tmp_path) == (0, 0)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_100a", "sm_120"])
def test_the_default_for_64_does_not_spill_anywhere(arch: str, tmp_path: Path) -> None:
    problem, spec = FORWARD.problem(HS=64, dtype="fp16"), gpu(GPU_OF[arch])
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    assert spilled(source, arch, tmp_path) == (0, 0)


def test_one_query_with_packed_heads_and_split_keys(tmp_path: Path) -> None:
    problem, spec = FORWARD.problem(B=1, NH=16, NH_kv=2, T=1, T_kv=8192, HS=128, dtype="fp16"), gpu("h200")
    config = Space(FAMILY, problem, spec).default()
    assert (config["PACK_HEADS"], config["SPLIT"], config["BLOCK_M"]) == (True, 32, 16)
    source = render(FAMILY, problem, config, spec)
    assert compile_strictly(source, spec.arch, tmp_path) == ""
    assert spilled(source, spec.arch, tmp_path) == (0, 0)
    attend, combine = source.plan.launches
    assert (attend.grid, attend.block, combine.grid, combine.block) == ((2, 32, 1), (32, 1, 1), (16, 1, 1), (32, 4, 1))


def spilled(source: KernelSource, arch: str, folder: Path) -> tuple[int, int]:
    """Bytes of registers that all kernels spill, and of stack."""
    reports = build_cubin(source, arch, BuildCache(folder)).kernels
    assert "attention_forward" in {report.kernel for report in reports}
    return sum(report.spill_bytes for report in reports), sum(report.stack_bytes for report in reports)
