"""The tensor core family of the forward pass: what it begins with spills at no head size and nowhere."""

from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.strictly import compile_strictly
from tests.every_family import GPU_OF

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_mma")


@pytest.mark.parametrize(
    ("HS", "causal"),
    [
        *((64, True), (64, False), (75, True), (80, False), (96, True)),
        *((128, True), (128, False), (250, True), (256, True), (256, False)),
    ],
)
def test_starts_do_not_spill(HS: int, causal: bool, cache: BuildCache) -> None:
    """What the family begins with on an H200; dtypes take turns."""
    spec = gpu("h200")
    problem = FORWARD.problem(HS=HS, dtype="fp16" if causal else "bf16", causal=causal)
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    assert spilled(source, spec.arch, cache) == (0, 0)


@pytest.mark.parametrize(
    ("arch", "HS"),
    [("sm_75", 64), ("sm_80", 64), ("sm_80", 80), ("sm_86", 50), ("sm_89", 64), ("sm_100a", 64), ("sm_120", 64)],
)
def test_the_default_spills_nowhere(arch: str, HS: int, cache: BuildCache) -> None:
    problem, spec = FORWARD.problem(HS=HS, dtype="fp16"), gpu(GPU_OF[arch])
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    assert spilled(source, arch, cache) == (0, 0)


def test_one_query_with_packed_heads_and_split_keys(tmp_path: Path, cache: BuildCache) -> None:
    problem, spec = FORWARD.problem(B=1, NH=16, NH_kv=2, T=1, T_kv=8192, HS=128, dtype="fp16"), gpu("h200")
    config = Space(FAMILY, problem, spec).default()
    assert (config["PACK_HEADS"], config["SPLIT"], config["BLOCK_M"]) == (True, 128, 16)
    source = render(FAMILY, problem, config, spec)
    assert compile_strictly(source, spec.arch, tmp_path) == ""
    assert spilled(source, spec.arch, cache) == (0, 0)
    attend, combine = source.plan.launches
    assert (attend.grid, attend.block, combine.grid, combine.block) == ((2, 128, 1), (32, 1, 1), (16, 1, 1), (32, 4, 1))


def spilled(source: KernelSource, arch: str, cache: BuildCache) -> tuple[int, int]:
    """Bytes of registers that all kernels spill, and of stack."""
    reports = build_cubin(source, arch, cache).kernels
    assert "attention_forward" in {report.kernel for report in reports}
    return sum(report.spill_bytes for report in reports), sum(report.stack_bytes for report in reports)
