"""The tensor core family of the forward pass compiles without a warning wherever it says it runs."""

from pathlib import Path

import numpy as np
import pytest

from autotune.build.cache import BuildCache
from autotune.build.nvcc import ARCHITECTURES, build_cubin
from autotune.devices.gpus import gpu
from autotune.ops.registry import get_op
from autotune.render import render
from autotune.space import Space
from autotune.template import find_template
from tests.build.test_forward_compiles import GPU_OF, compile_strictly

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


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("HS", "causal"), [(64, True), (64, False), (128, True), (128, False)])
def test_the_default_does_not_spill(HS: int, causal: bool, dtype: str, tmp_path: Path) -> None:
    problem, spec = FORWARD.problem(HS=HS, dtype=dtype, causal=causal), gpu("h200")
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    (report,) = build_cubin(source, spec.arch, BuildCache(tmp_path)).kernels
    assert report.kernel == "attention_forward"
    assert (report.spill_bytes, report.stack_bytes) == (0, 0)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_100a", "sm_120"])
def test_the_default_for_64_does_not_spill_anywhere(arch: str, tmp_path: Path) -> None:
    problem, spec = FORWARD.problem(HS=64, dtype="fp16"), gpu(GPU_OF[arch])
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    (report,) = build_cubin(source, arch, BuildCache(tmp_path)).kernels
    assert (report.spill_bytes, report.stack_bytes) == (0, 0)
