"""Divisions by multiplication."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

DIVISORS = np.array([1, 2, 3, 5, 7, 12, 48, 1023, 4097, 65535], np.int32)


def test_quotients_by_multiplication(cache: BuildCache) -> None:
    """All numbers up to 65535 get the quotient that a division gives."""
    kernel = SmallKernel(
        """
        #include "common/attention/work_order.cuh"
        extern "C" __global__ void test(const int* divisors, int* wrong)
        {
            for (int i = 0; i < COUNT; ++i) {
                const long long inverse = ((1ll << 40) + divisors[i] - 1) / divisors[i];
                for (int n = threadIdx.x; n < 65536; n += 32)
                    if (divided(n, inverse) != n / divisors[i]) wrong[i] = 1;
            }
        }
        """.replace("COUNT", str(DIVISORS.size)),
        cache,
    )
    got = kernel(divisors=DIVISORS, wrong=np.zeros(DIVISORS.size, np.int32))
    np.testing.assert_array_equal(got["wrong"], 0)
