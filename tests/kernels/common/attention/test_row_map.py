"""Which query and head a row is, and which key head a head has, for groups of any size."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

GROUPS = np.array([1, 2, 3, 5, 7, 12, 48, 1023, 4097, 65535], np.int32)


def test_key_heads_by_multiplication(cache: BuildCache) -> None:
    """Every head up to 65535, for which a grid has room, gets the quotient that a division gives."""
    kernel = SmallKernel(
        """
        #include "common/attention/row_map.cuh"
        extern "C" __global__ void test(const int* groups, int* wrong)
        {
            for (int i = 0; i < COUNT; ++i) {
                const long long inverse = ((1ll << 40) + groups[i] - 1) / groups[i];
                for (int head = threadIdx.x; head < 65536; head += 32)
                    if (key_head(head, inverse) != head / groups[i]) wrong[i] = 1;
            }
        }
        """.replace("COUNT", str(GROUPS.size)),
        cache,
    )
    got = kernel(groups=GROUPS, wrong=np.zeros(GROUPS.size, np.int32))
    np.testing.assert_array_equal(got["wrong"], 0)


@pytest.mark.parametrize(("packed", "group"), [(False, 3), (True, 3), (True, 1)])
def test_rows_of_a_key_head(packed: bool, group: int, cache: BuildCache) -> None:
    """Packed, the heads of a query are neighbours; else rows are the queries of one head."""
    kernel = SmallKernel(
        """
        #include "common/attention/row_map.cuh"
        extern "C" __global__ void test(int* queries, int* heads, int* count)
        {
            const RowMap<PACKED> map(2, GROUP, 10);
            queries[threadIdx.x] = map.query(threadIdx.x);
            heads[threadIdx.x] = map.head(threadIdx.x);
            *count = map.count;
        }
        """.replace("PACKED", str(packed).lower()).replace("GROUP", str(group)),
        cache,
    )
    empty = np.zeros(32, np.int32)
    got = kernel(queries=empty, heads=empty, count=np.zeros(1, np.int32))
    rows, each = np.arange(32), group if packed else 1
    np.testing.assert_array_equal(got["queries"], rows // each)
    np.testing.assert_array_equal(got["heads"], 2 * each + rows % each if packed else np.full(32, 2))
    assert got["count"][0] == 10 * each
