"""The fp32 tensor core family of the forward pass: its defaults do not spill."""

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.every_family import GPU_OF

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_tf32x3")


@pytest.mark.parametrize(("HS", "causal", "arch"), [(64, True, "sm_90a"), (128, False, "sm_90a"), (75, False, "sm_80")])
def test_the_default_does_not_spill(HS: int, causal: bool, arch: str, cache: BuildCache) -> None:
    problem, spec = FORWARD.problem(HS=HS, dtype="fp32", causal=causal), gpu(GPU_OF[arch])
    source = render(FAMILY, problem, Space(FAMILY, problem, spec).default(), spec)
    (report,) = build_cubin(source, arch, cache).kernels
    assert report.kernel == "attention_forward"
    assert (report.spill_bytes, report.stack_bytes) == (0, 0)
