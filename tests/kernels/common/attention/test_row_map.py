"""Which query and head a row is, for groups of any size."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


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
