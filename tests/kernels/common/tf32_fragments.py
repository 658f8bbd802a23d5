"""Products of tf32 operands by the headers that make them, and numbers to try them with."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

LANE = np.arange(32)
G, T = LANE // 4, LANE % 4  # a lane's group and its place there, as the PTX manual numbers fragments
EPSILON = 2.0**-23


def bits(x: NDArray[np.float32]) -> NDArray[np.int32]:
    return np.ascontiguousarray(x).view(np.int32)


def truncated(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the hardware sees of a register."""
    return (bits(x) & np.int32(-0x2000)).view(np.float32)


def rounded(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """To 10 bits of mantissa, ties away from zero, computed without bits."""
    with np.errstate(divide="ignore"):
        step = np.exp2(np.floor(np.log2(np.abs(x.astype(np.float64)))) - 10)
    nearest: NDArray[np.float64] = np.sign(x) * np.floor(np.abs(x) / step + 0.5) * step
    return nearest.astype(np.float32)


def a_fragments(a: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lane by register of a 16x8 A operand."""
    return np.stack([a[G + i % 2 * 8, T + i // 2 * 4] for i in range(4)], axis=1)


def b_fragments(b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lane by register of an 8x8 B operand."""
    return np.stack([b[T + i * 4, G] for i in range(2)], axis=1)


def d_fragments(d: NDArray[Any]) -> NDArray[Any]:
    """Lane by register of a 16x8 accumulator."""
    return np.stack([d[G + i // 2 * 8, 2 * T + i % 2] for i in range(4)], axis=1)


def products(cache: BuildCache, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], call: str) -> NDArray[Any]:
    """`call` on a warp's fragments `a`, `b`, `d` (lane by register)."""
    kernel = SmallKernel(
        """
        #include "common/warp/tf32_bf16_operands.cuh"
        extern "C" __global__ void test(const float* x, const float* y, float* z)
        {
            float d[1][1][4];
            uint32_t a[4], b[2];
            for (int i = 0; i < 4; ++i) a[i] = __float_as_uint(x[4 * threadIdx.x + i]);
            for (int i = 0; i < 2; ++i) b[i] = __float_as_uint(y[2 * threadIdx.x + i]);
            for (int i = 0; i < 4; ++i) d[0][0][i] = z[4 * threadIdx.x + i];
            Tf32A split_a[1];
            Tf32B split_b[1];
            split_a[0].set(a);
            split_b[0].set(b);
            MixedA mixed_a[1];
            MixedB mixed_b[1];
            mixed_a[0].set(a);
            mixed_b[0].set(b);
            CALL;
            for (int i = 0; i < 4; ++i) z[4 * threadIdx.x + i] = d[0][0][i];
        }
        """.replace("CALL", call),
        cache,
    )
    return kernel(x=a_fragments(a), y=b_fragments(b), z=d_fragments(d))["z"]


BARE = "mma_16x8x8_tf32(d[0][0], a, b)"
THREE = "multiply_tf32x3(d, 0, split_a, split_b)"
MIXED = "multiply_tf32x3(d, 0, mixed_a, mixed_b)"


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def numbers() -> NDArray[np.float32]:
    """Normal numbers of many sizes, ties, neighbours of powers of two, the smallest and nearly the largest."""
    x = normal(7, 4096) * np.exp2(np.random.default_rng(8).integers(-60, 60, 4096)).astype(np.float32)
    x[:6] = [1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-11 - EPSILON, 2 - EPSILON, 2.0**-126, 3e38]
    return x


def check_accuracy(call: str, roundings: int, cache: BuildCache) -> None:
    """Three products are about as good as fp32, in units of its last place; one is far from it."""
    a, b, d = normal(5, 16, 8), normal(6, 8, 8), np.zeros((16, 8), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(products(cache, a, b, d, call) - d_fragments(exact)).max()
    scale = (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))).max()
    assert error <= roundings * EPSILON * scale
    one = np.abs(products(cache, a, b, d, BARE) - d_fragments(exact)).max()
    assert one > 100 * error


def check_size(call: str, size: float, cache: BuildCache) -> None:
    """Small parts neither underflow nor overflow."""
    a, b, d = normal(7, 16, 8) * np.float32(size), normal(8, 8, 8) * np.float32(size), np.zeros((16, 8), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(
        products(cache, a, b, d, call), d_fragments(exact), rtol=0, atol=3e-6 * np.abs(exact).max()
    )


def check_small_parts(call: str, cache: BuildCache) -> None:
    """1 + 2**-12 times 1, and 1 times that, at each depth alone: the small part counts, whichever factor has it."""
    small = np.float32(1 + 2.0**-12)
    a, b = np.zeros((16, 8), np.float32), np.zeros((8, 8), np.float32)
    for row in range(16):
        a[row, row % 8] = small if row < 8 else 1
    b[:] = np.where(np.arange(8)[:, None] % 2 == 1, small, 1)
    got = products(cache, a, b, np.zeros((16, 8), np.float32), call)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, d_fragments(exact), rtol=0, atol=2.0**-20)


def check_not_finite(call: str, value: float, cache: BuildCache) -> None:
    """NaN and infinity pass, and touch nothing else."""
    a, b, d = np.ones((16, 8), np.float32), np.ones((8, 8), np.float32), np.zeros((16, 8), np.float32)
    a[3, 2], b[5, 6] = value, value
    got = products(cache, a, b, d, call)
    finite = np.full((16, 8), True)
    finite[3], finite[:, 6] = False, False
    np.testing.assert_array_equal(np.isfinite(got), d_fragments(finite))
    assert (got[d_fragments(finite)] == 8).all()
