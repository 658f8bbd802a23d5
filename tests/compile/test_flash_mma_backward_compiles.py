"""The backward family on tensor cores: every form of its code compiles; first starts do not spill."""

from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.values import Value
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.strictly import compile_strictly

BACKWARD = get_op("backward")
FAMILY = find_template("backward", "flash_mma")


@pytest.mark.parametrize(
    "changes",
    [
        {"DQ_ACCUMULATE": "atomic", "IN_REGISTERS": "both", "CHUNK": 16, "STAGES": 1},
        {"DQ_ACCUMULATE": "separate", "IN_REGISTERS": "one", "PEEL": True, "REVERSE": True},
        {"DQ_ACCUMULATE": "alongside", "HEADS_AT_ONCE": 8, "STAGES": 1},
        {"DQ_ACCUMULATE": "separate", "HEADS_AT_ONCE": 1},
        {"DQ_ACCUMULATE": "atomic_later", "STMATRIX": True, "SCHEDULE": "in_turn"},
        {"BLOCK_N": 64, "WARPS_D": 2, "CHUNK": 16, "SCHEDULE": "overlapped", "MIN_BLOCKS": 1},
        {"WARPS_D": 2, "SPLIT": "gradients", "SCHEDULE": "in_turn", "MIN_BLOCKS": 1, "DQ_WARPS_M": 4},
    ],
)
def test_every_form_of_the_code_compiles(changes: dict[str, Value], tmp_path: Path) -> None:
    """Each renders other code."""
    spec = gpu("h200")
    problem = BACKWARD.problem(dtype="bf16", HS=64)
    space = Space(FAMILY, problem, spec)
    config = {**space.default(), **changes}
    assert space.contains(config), space.why_not(config)
    assert compile_strictly(render(FAMILY, problem, config, spec), spec.arch, tmp_path) == ""


@pytest.mark.parametrize(
    ("dtype", "HS", "device"),
    [
        *(("fp16", 32, "h200"), ("fp16", 64, "h200"), ("fp16", 128, "h200"), ("fp16", 256, "h200")),
        ("fp16", 36, "a100"),
        *(("bf16", 64, "h200"), ("bf16", 75, "h200"), ("bf16", 128, "h200"), ("bf16", 256, "h200")),
    ],
)
def test_the_first_start_spills_nothing(dtype: str, HS: int, device: str, cache: BuildCache) -> None:
    spec = gpu(device)
    problem = BACKWARD.problem(dtype=dtype, HS=HS)
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    artifact = build_cubin(source, spec.arch, cache)
    assert {report.kernel for report in artifact.kernels} == set(source.plan.kernels)
    for report in artifact.kernels:
        assert max(report.spill_bytes, report.stack_bytes) == 0, report.kernel
