"""dQ in a pass of its own, a block of 128 queries: one head against the reference."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.plan import TensorMapArg
from autotune.ops.registry import get_op
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/query_pass.cuh"
#include "common/ptx/registers.cuh"
extern "C" __global__ void __launch_bounds__(384, 1)
test(const __half*, const __half*, const __half*, const __half*, const float* origins, const float* deltas, __half*,
     const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap dout_map,
     const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
     const __grid_constant__ TensorMap dq_map)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const QueryPass<__half, 32, 48, CAUSAL, 2, 1> pass(shared_address(smem), Scores<CAUSAL>(T, T_KV, SCALE), 0, 0, 0);
    if (threadIdx.x == 0) pass.init();
    __syncthreads();
    if (threadIdx.x >= 256) {
        release_registers<24>();
        if (threadIdx.x == 256) pass.produce(0, q_map, dout_map, k_map, v_map);
    } else {
        take_registers<240>();
        pass.attend(origins, deltas, dq_map);
    }
}
"""


@pytest.mark.parametrize(("T", "T_kv", "causal"), [(128, 200, True), (100, 40, True), (50, 130, False)])
def test_one_block(T: int, T_kv: int, causal: bool, cache: BuildCache) -> None:
    """Groups that see less than their block, rows without keys, a group without rows."""
    op = get_op("backward")
    problem = op.problem(B=1, NH=1, NH_kv=1, T=T, T_kv=T_kv, HS=32, dtype="fp16", causal=causal)
    inputs: dict[str, NDArray[Any]] = op.inputs(problem, seed=2)
    log_sums = inputs["lse"].astype(np.float64).ravel()
    sees = np.isfinite(log_sums)
    origins = np.where(sees, log_sums / np.log(2), np.inf).astype(np.float32)
    deltas = (inputs["out"].astype(np.float64) * inputs["dout"].astype(np.float64)).sum(-1).ravel().astype(np.float32)

    def tensor_map(name: str, rows: int, box: int) -> TensorMapArg:
        shape, strides = (32, rows, 1, 1), (1, 32, 32 * rows, 32 * rows)
        return TensorMapArg(f"{name}_map", name, 0, "fp16", shape, strides, (32, box, 1, 1), 64, "output")

    maps = tuple(
        tensor_map(name, rows, box)
        for name, rows, box in (("q", T, 64), ("dout", T, 64), ("k", T_kv, 48), ("v", T_kv, 48), ("dq", T, 64))
    )
    text = KERNEL.replace("CAUSAL", str(causal).lower()).replace("SCALE", f"{32**-0.5}f")
    text = text.replace("T_KV", str(T_kv)).replace("(T,", f"({T},")
    kernel = SmallKernel(text, cache, threads=384, smem=4 * 4096 + 3 * 3072 + 128, maps=maps)
    heads = {name: inputs[name].reshape(-1, 32) for name in ("q", "k", "v", "dout")}
    got = kernel(**heads, origins=origins, deltas=np.where(sees, deltas, 0), dq=np.full((T, 32), np.nan, np.float16))
    expected = op.reference(problem, inputs)["dq"].reshape(-1, 32)
    np.testing.assert_allclose(got["dq"].astype(np.float64), expected, rtol=0, atol=3e-3 * np.abs(expected).max())
    np.testing.assert_array_equal(got["dq"][~sees], 0)
