"""Which number a query's sums have, and what computes single rows again."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_numbers_of_queries(cache: BuildCache) -> None:
    """Heads have `rows` sums each, T of them of queries; beyond 2**31 the number is not cut off."""
    kernel = SmallKernel(
        """
        #include "common/attention/gradient_operands.cuh"
        using Operands = GradientOperands<__half, 32, true>;
        extern "C" __global__ void test(const float* sums, float* found, long long* far, int* exact)
        {
            const View<__half, 4> none = {nullptr, {0, 0, 0, 1}};
            const Operands in = {none, none, none, none, none, nullptr, reinterpret_cast<const RowSums*>(sums),
                                 6,    2,    10,   12,   16,   0.5f};
            if (threadIdx.x < 16) found[threadIdx.x] = in.sums_of(1, 4, threadIdx.x)->delta;
            constexpr int LONG = 1 << 20;
            const Operands wide = {none, none, none, none, none, nullptr, nullptr, 64, 64, LONG, LONG, LONG, 1.0f};
            *far = wide.number(40, 3, 7);
            const auto rows = in.exact();
            exact[0] = rows.NH;
            exact[1] = rows.group;
            exact[2] = rows.scores.T;
            exact[3] = rows.scores.keys_seen(0);
        }
        """,
        cache,
    )
    sums = np.arange(2 * 6 * 16 * 2, dtype=np.float32).reshape(2, 6, 16, 2)
    far = np.zeros(2, np.int32)
    got = kernel(sums=sums, found=np.zeros(16, np.float32), far=far, exact=np.zeros(4, np.int32))
    np.testing.assert_array_equal(got["found"], sums[1, 4, :, 1])
    assert got["far"].view(np.int64)[0] == (40 * 64 + 3) * 2**20 + 7
    np.testing.assert_array_equal(got["exact"], [6, 3, 10, 3])
