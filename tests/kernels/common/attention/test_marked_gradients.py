"""Gradients that are not finite: marked where a group stores them, and computed again sixteen rows at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.plan import TensorMapArg
from autotune.ops.registry import get_op
from tests.emulator.small_kernel import SmallKernel

STORE = """
#include "common/attention/accumulator_rows.cuh"
#include "common/attention/marked_gradients.cuh"
using Tile = SlabTile<64, 32>;
extern "C" __global__ void __launch_bounds__(128) test(const float* in, __half*,
                                                       const __grid_constant__ TensorMap out_map)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    float x[16];
    for (int i = 0; i < 16; ++i)
        x[i] = in[(accumulator_row() + i / 2 % 2 * 8) * 32 + i / 4 * 8 + accumulator_col() + i % 2];
    store_marked<Tile, __half>(x, 0.5f, out_map, {0, 64, 0, 0}, true, shared_address(memory), 0, 0);
    store_marked<Tile, __half>(x, 0.5f, out_map, {0, 0, 0, 0}, false, shared_address(memory), 0, 0);
    if (threadIdx.x == 0) bulk_wait<0>();
}
"""

MEND = """
#include "common/attention/marked_gradients.cuh"
extern "C" __global__ void test(const __half* q, const __half* k, const __half* v, const __half* out,
                                const __half* dout, const float* lse, __half* dq, __half* dk, __half* dv)
{
    const auto view = [](auto* data, int rows) {
        return View<std::remove_pointer_t<decltype(data)>, 4>{data, {2 * rows * 32, rows * 32, 32, 1}};
    };
    const ExactGradients<32, true, __half> exact = {view(q, T), view(k, TK), view(v, TK), view(out, T), view(dout, T),
                                                    lse, 2, 1, Scores<true>(T, TK, SCALE)};
    for (int i = 0; i < 2 * ((TK + 15) / 16); ++i) {
        const RowPlace keys = sixteen_rows(i, 2, TK);
        KeyMarks<__half> marks;
        marks.load(view(dk, TK), view(dv, TK), keys);
        __syncwarp();
        if (marks.any()) mend_keys(exact, view(dk, TK), view(dv, TK), keys);
    }
    for (int i = 0; i < 2 * ((T + 15) / 16); ++i) mend_marked_queries(exact, view(dq, T), sixteen_rows(i, 2, T));
}
"""


def test_a_warp_marks_its_sixteen_rows(cache: BuildCache) -> None:
    """Where one of its numbers is NaN or infinite, and there alone; a group that does not exist stores nothing."""
    x = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    x[20, 3], x[50, 31] = np.nan, -np.inf
    out = np.full((128, 32), 7, np.float16)
    out_map = TensorMapArg(
        "out_map", "out", 0, "fp16", (32, 128, 1, 1), (1, 32, 4096, 4096), (32, 64, 1, 1), 64, "output"
    )
    kernel = SmallKernel(STORE, cache, threads=128, smem=4096, maps=(out_map,))
    got = kernel(**{"in": x}, out=out)["out"]
    expected = (x * np.float32(0.5)).astype(np.float16)
    expected[16, 0] = expected[48, 0] = np.nan
    np.testing.assert_array_equal(got[64:], expected)
    np.testing.assert_array_equal(got[:64], 7)


def test_marked_rows_are_computed_again(cache: BuildCache) -> None:
    """Those of marked sixteens, and of them those that are not finite: what is wrong otherwise stays."""
    op = get_op("backward")
    problem = op.problem(B=1, NH=2, NH_kv=2, T=40, T_kv=20, HS=32, dtype="fp16", causal=True)
    inputs: dict[str, NDArray[Any]] = op.inputs(problem, seed=2)
    right = op.reference(problem, inputs)
    results = {name: array.astype(np.float16) for name, array in right.items()}
    results["dq"][0, 1, 16], results["dk"][0, 0, 16, 0], results["dv"][0, 1, :7] = np.nan, np.nan, np.nan
    results["dk"][0, 1, :, 5], results["dq"][0, 0] = 3, 5
    text = MEND.replace("SCALE", f"{32**-0.5}f").replace("TK", "20").replace("(T ", "(40 ")
    for before in ("T)", "T,"):
        text = text.replace(before, before.replace("T", "40"))
    names = ("q", "k", "v", "out", "dout", "lse")
    got = SmallKernel(text, cache)(**{name: inputs[name] for name in names}, **results)
    wrong: dict[str, Any] = {"dq": np.s_[:, 0], "dk": np.s_[:, 1], "dv": np.s_[:0]}
    for name, where in wrong.items():
        kept = right[name].astype(np.float16)
        kept[where] = results[name][where]
        tolerance = 2e-3 * np.abs(kept.astype(np.float64)).max()
        np.testing.assert_allclose(got[name].astype(np.float64), kept, rtol=0, atol=tolerance, err_msg=name)
