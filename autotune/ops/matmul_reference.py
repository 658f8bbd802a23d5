"""Batched matrix products in NumPy: the float64 reference, and the same with a kernel's rounding.

C = alpha·A·B with A (…, M, K), B (…, K, N), C (…, M, N). A mask names a triangle, aligned bottom-right like
attention's: with `c_lower` only elements j <= i + N - M of C are wanted, the others are 0; with `a_lower` and
`a_upper` A is 0 outside k <= i + K - M and outside k >= i + K - M.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.dtypes import rounded


def matmul(
    a: NDArray[Any], b: NDArray[Any], alpha: float, mask: str, low_precision: str | None = None
) -> NDArray[np.float64]:
    """C as float64 values. With `low_precision` sums are float32 and C is rounded to that dtype."""
    compute = np.dtype(np.float64 if low_precision is None else np.float32)
    c = _product(a.astype(compute), b.astype(compute), mask) * compute.type(alpha)
    if mask == "c_lower":
        c = np.where(triangle("lower", *c.shape[-2:]), c, compute.type(0))
    return (c if low_precision is None else rounded(c, low_precision)).astype(np.float64)


def _product(a: NDArray[Any], b: NDArray[Any], mask: str) -> NDArray[Any]:
    """a·b from the summands that the mask leaves: those it makes 0 are no part of a sum, even where b is NaN."""
    odd = ~np.isfinite(b).all(axis=-1)
    if not mask.startswith("a_") or not odd.any():
        with np.errstate(invalid="ignore"):
            product: NDArray[Any] = a @ b
        return product
    left = triangle(mask.removeprefix("a_"), *a.shape[-2:])
    product = a @ np.where(odd[..., None], b.dtype.type(0), b)
    with np.errstate(invalid="ignore"):
        for k in np.flatnonzero(odd.reshape(-1, odd.shape[-1]).any(axis=0)):
            there = a[..., left[:, k], k][..., None] * b[..., k, :][..., None, :]
            product[..., left[:, k], :] += np.where(odd[..., k][..., None, None], there, 0)
    return product


def triangle(side: str, rows: int, cols: int) -> NDArray[np.bool_]:
    """Elements on the diagonal that ends bottom-right, and those below it (`lower`) or above it (`upper`)."""
    beyond = np.arange(cols)[None, :] - np.arange(rows)[:, None] - (cols - rows)
    return beyond <= 0 if side == "lower" else beyond >= 0


def rounded_to_tf32(array: NDArray[Any]) -> NDArray[np.float32]:
    """float32 values rounded to tf32, 10 mantissa bits: to nearest, ties away from zero, as cvt.rna.tf32.f32 does."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    finite = np.isfinite(array)
    return np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits).view(np.float32)
