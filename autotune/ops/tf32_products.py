"""Products of float32 matrices as kernels on tensor cores compute them from tf32 ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.ops.matmul_reference import rounded_to_tf32


def truncated_to_tf32(array: NDArray[Any]) -> NDArray[np.float32]:
    """float32 values without the bits that a tf32 has no room for: 10 bits of mantissa."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


def multiply_tf32x3(a: NDArray[Any], b: NDArray[Any], /, out: NDArray[Any] | None = None) -> NDArray[np.float32]:
    """a @ b by three products of tf32 matrices, summed in float32, small ones first (3xTF32); to `out` where given.

    Each factor is the sum of two tf32 numbers but for its last bits, a's first one rounded and b's truncated, as in
    `templates/common/ptx/mma_tf32.cuh`; the product of the small ones is left out.
    """
    a_big, b_big = rounded_to_tf32(a), truncated_to_tf32(b)
    a_small, b_small = truncated_to_tf32(a - a_big), truncated_to_tf32(b - b_big)
    small: NDArray[np.float32] = a_small @ b_big + a_big @ b_small
    result: NDArray[np.float32] = np.add(small, a_big @ b_big, out=out)
    return result
