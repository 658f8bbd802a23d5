"""2^x from polynomials: its error over the whole range, and the values at the ends."""

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

BOUNDS = {3: 7.6e-5, 4: 2.8e-6, 5: 2.4e-7}
"""Of the relative error by degree, as the header says."""


def exp2(x: NDArray[np.float32], cache: BuildCache) -> NDArray[np.float32]:
    """Degree 3, 4 and 5 of every x."""
    kernel = SmallKernel(
        """
        #include "common/attention/exp2_polynomial.cuh"
        extern "C" __global__ void test(const float* x, float* y)
        {
            for (int i = threadIdx.x; i < COUNT; i += 32) {
                y[i] = exp2_polynomial<3>(x[i]);
                y[COUNT + i] = exp2_polynomial<4>(x[i]);
                y[2 * COUNT + i] = exp2_polynomial<5>(x[i]);
            }
        }
        """.replace("COUNT", str(x.size)),
        cache,
    )
    return kernel(x=x, y=np.full((3, x.size), np.nan, np.float32))["y"]


def test_the_error_of_polynomials_is_what_the_header_says(cache: BuildCache) -> None:
    """Evenly over all exponents, densely over one period, at and beside every half."""
    halves = np.arange(-126, 127.5, 0.5, dtype=np.float32)
    x = np.concatenate(
        [
            np.linspace(-126, 127, 200_000, dtype=np.float32),
            np.linspace(-1, 1, 200_000, dtype=np.float32),
            np.nextafter(halves, np.float32(-np.inf))[1:],
            np.nextafter(halves, np.float32(np.inf))[:-1],
            halves,
        ]
    )
    exact = np.exp2(x.astype(np.float64))
    error = np.abs(exp2(x, cache) / exact - 1).max(axis=1)
    for degree, worst in zip(BOUNDS, error, strict=True):
        assert 0.8 * BOUNDS[degree] < worst < BOUNDS[degree], degree


def test_small_results_of_polynomials_fade_to_zero(cache: BuildCache) -> None:
    """Results too small for all their bits are absolutely as good as the smallest normal one, and then 0."""
    x = np.linspace(-126.5, -126, 1001, dtype=np.float32)[1:]
    exact = np.exp2(x.astype(np.float64))
    worst = np.abs(exp2(x, cache) - exact).max(axis=1)
    assert (worst <= np.array(list(BOUNDS.values())) * 2.0**-126).all()
    nothing = np.array([-126.51, -127, -127.5, -149, -150, -1e4, -3e38, -np.inf], np.float32)
    assert (exp2(nothing, cache) == 0).all()


def test_polynomials_at_the_ends(cache: BuildCache) -> None:
    got = exp2(np.array([np.nan, 0.0, -0.0, 127.0], np.float32), cache)
    assert np.isnan(got[:, 0]).all()
    np.testing.assert_allclose(got[:, 1:], np.broadcast_to([1, 1, 2.0**127], (3, 3)), rtol=BOUNDS[3])
