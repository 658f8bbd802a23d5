"""The end of dQ's sums: scaled, rounded, in their places; rows that are not finite are computed again."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.ops.registry import get_op
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/accumulator_sums.cuh"
#include "common/attention/round_sums.cuh"
using Sums = AccumulatorSums<64, 64, 32, false>;
extern "C" __global__ void test(const __half* q, const __half* k, const __half* v, const __half* out,
                                const __half* dout, const float* lse, const float* sums, __half* dq)
{
    const auto view = [](auto* data, int rows) {
        return View<std::remove_pointer_t<decltype(data)>, 4>{data, {rows * 40, rows * 40, 40, 1}};
    };
    const ExactGradients<40, false, __half> exact = {view(q, 60), view(k, 20), view(v, 20), view(out, 60),
                                                     view(dout, 60), lse, 1, 1, Scores<false>(60, 20, SCALE)};
    View<__half, 4> gradient = {dq, {60 * PITCH, 60 * PITCH, PITCH, 1}};
    for (int row = 0; row < 64; row += 16)
        for (int col = 0; col < 40; col += 32 * PARTS)
            round_sums<Sums, PARTS>(sums, row, gradient, exact, {0, 0, row}, col);
}
"""


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("pitch", [40, 41])
def test_dq_of_a_tile(pitch: int, parts: int, cache: BuildCache) -> None:
    """Rows and columns beyond the tensor are left alone; whole vectors where they are allowed, else single elements."""
    op = get_op("backward")
    problem = op.problem(B=1, NH=1, NH_kv=1, T=60, T_kv=20, HS=40, dtype="fp16", causal=False)
    inputs: dict[str, NDArray[Any]] = op.inputs(problem, seed=2)
    scale = np.float32(40**-0.5)
    dq = np.zeros((64, 64), np.float32)
    dq[:60, :40] = (op.reference(problem, inputs)["dq"][0, 0] / scale).astype(np.float32)
    expected = (dq * scale)[:60, :40].astype(np.float16)
    dq[60:], dq[:, 40:] = np.nan, np.nan  # of these nothing is seen, though rows are looked at again
    dq[17, 3], dq[33, 39] = np.inf, np.nan
    # part of 32 columns, 8 of them, thread of the group, four
    row, col = (index.ravel() for index in np.indices((64, 64)))
    place = col // 32 * 2048 + col % 32 // 8 * 512 + row // 16 * 128 + row % 8 * 16 + col % 8 // 2 * 4
    place += row % 16 // 8 * 2 + col % 2
    sums = np.zeros(4096, np.float32)
    sums[place] = dq.ravel()
    text = KERNEL.replace("SCALE", f"{scale}f").replace("PITCH", str(pitch)).replace("PARTS", str(parts))
    kernel = SmallKernel(text, cache)
    names = ("q", "k", "v", "out", "dout", "lse")
    got = kernel(**{name: inputs[name] for name in names}, sums=sums, dq=np.full((60, pitch), 7, np.float16))["dq"]
    largest = float(np.abs(expected).max())
    np.testing.assert_allclose(got[:, :40], expected, rtol=0, atol=2e-3 * largest)
    rows = np.delete(np.arange(60), [17, 33])
    np.testing.assert_array_equal(got[rows, :32], expected[rows, :32])
    np.testing.assert_array_equal(got[:, 40:], 7)
