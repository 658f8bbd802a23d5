"""Which elements of a matrix lanes hold as operands of mma and as its sums."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

CTYPES = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
NAMES = {"__half": "fp16", "__nv_bfloat16": "bf16"}
each_ctype = pytest.mark.parametrize("ctype", CTYPES)

# Elements of a fragment's register by lane, as the PTX manual gives them: g = lane / 4, p = 2 * (lane % 4).
LANE = np.arange(32)
G, P = LANE // 4, LANE % 4 * 2


def pairs(matrix: NDArray[Any], rows: NDArray[Any], cols: NDArray[Any]) -> NDArray[np.int32]:
    """Registers that hold (row, col) in the low half and (row, col + 1) in the high one."""
    both = np.stack([matrix[rows, cols], matrix[rows, cols + 1]], axis=-1)
    return np.ascontiguousarray(both).view(np.int32)[..., 0]


def a_fragments(a: NDArray[Any]) -> NDArray[np.int32]:
    """Lane by register of a 16x16 A operand."""
    return np.stack([pairs(a, G + i % 2 * 8, P + i // 2 * 8) for i in range(4)], axis=1)


def b_fragments(b: NDArray[Any]) -> NDArray[np.int32]:
    """Lane by register of a 16x8 B operand."""
    return np.stack([pairs(b.T, G, P + i * 8) for i in range(2)], axis=1)


def d_fragments(d: NDArray[Any]) -> NDArray[Any]:
    """Lane by register of a 16x8 accumulator."""
    return np.stack([d[G + i // 2 * 8, P + i % 2] for i in range(4)], axis=1)
