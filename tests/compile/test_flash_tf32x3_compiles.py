"""The fp32 tensor core family of the forward pass compiles without a warning wherever it says it runs."""

from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.test_forward_compiles import GPU_OF, compile_strictly

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_tf32x3")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_compiles_without_warnings(arch: str, tmp_path: Path) -> None:
    """A random configuration; head size and mask change with the architecture."""
    turn, spec = ARCHITECTURES.index(arch), gpu(GPU_OF[arch])
    problem = FORWARD.problem(HS=(64, 128, 32, 96, 256, 192)[turn % 6], dtype="fp32", causal=turn % 2 == 0)
    config = Space(FAMILY, problem, spec).sample(np.random.default_rng(turn))
    assert compile_strictly(render(FAMILY, problem, config, spec), arch, tmp_path) == "", config


@pytest.mark.parametrize(("HS", "causal", "arch"), [(64, True, "sm_90a"), (128, False, "sm_90a"), (64, False, "sm_80")])
def test_the_default_does_not_spill(HS: int, causal: bool, arch: str, tmp_path: Path) -> None:
    problem, spec = FORWARD.problem(HS=HS, dtype="fp32", causal=causal), gpu(GPU_OF[arch])
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    (report,) = build_cubin(source, arch, BuildCache(tmp_path)).kernels
    assert report.kernel == "attention_forward"
    assert (report.spill_bytes, report.stack_bytes) == (0, 0)
