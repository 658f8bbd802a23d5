"""tf32_rounded against the instruction that it stands for, on the GPU."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.tf32_fragments import numbers

pytestmark = pytest.mark.gpu

ROUND = """
#include "common/ptx/mma_tf32.cuh"
extern "C" __global__ void test(const float* x, unsigned* ours, unsigned* theirs)
{
    for (int i = threadIdx.x; i < 4096; i += 32) {
        ours[i] = tf32_rounded(x[i]);
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(theirs[i]) : "f"(x[i]));
    }
}
"""


def test_rounding_is_that_of_the_instruction(cache: BuildCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallKernel, "emulated", False)
    x = numbers()
    x[6:10] = [0.0, -0.0, np.inf, 2.0**-140]
    got = SmallKernel(ROUND, cache)(x=x, ours=np.zeros(4096, np.int32), theirs=np.ones(4096, np.int32))
    np.testing.assert_array_equal(got["ours"], got["theirs"])
