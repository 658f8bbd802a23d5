"""Asynchronous instructions, as late as they may be: mistakes give wrong numbers or end the launch with a message."""

import re

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.errors import LaunchError
from autotune.core.plan import TensorMapArg
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common import pipelined

ROWS, DEPTH = 128, 448


def run(code: str, cache: BuildCache) -> float:
    """The largest error of the pipelined product, changed."""
    maps = pipelined.maps(ROWS, DEPTH)
    given = pipelined.operands(ROWS, DEPTH)
    kernel = SmallKernel(code, cache, threads=pipelined.THREADS, smem=pipelined.SMEM, maps=maps)
    wanted = given["a"].astype(np.float64) @ given["b"].astype(np.float64).T
    return float(np.abs(kernel(**given)["c"] - wanted).max())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if (step > 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * ((step - 1) % STAGES));",
         "if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * stage);"),
        ("mbarrier_init(empty + 8 * stage, 2);", "mbarrier_init(empty + 8 * stage, 1);"),
        ("if (threadIdx.x % 128 == 0) bulk_wait_read<0>();\n            named_barrier", "named_barrier"),
    ],
)  # fmt: skip
def test_mistakes_that_time_may_hide_give_wrong_numbers(before: str, after: str, cache: BuildCache) -> None:
    assert pipelined.CODE.count(before) == 1
    assert not run(pipelined.CODE.replace(before, after), cache) < 1e-3  # NaN or far off


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "parity ^ 1",
            "parity",
            r"parity 0 of the mbarrier at byte \d+ of shared memory: phase 0 lacks 2 of 2 arrivals",
        ),
        ("8 * stage, STAGE_BYTES)", "8 * stage, STAGE_BYTES + 16)", r"lacks 0 of 1 arrivals and 16 bytes"),
        ("mbarrier_wait(empty + 8 * stage, parity ^ 1);", "", r"phase 0 has all of its 1 arrivals and waits for 28672"),
        ("mbarrier_wait(full + 8 * stage, parity);", "", r"phase 0 has all of its 1 arrivals and waits for 28672"),
        (
            "wait(full + 8 * stage, parity);",
            "wait(full + 8 * stage, parity ^ 1);",
            r"phase 0 has all of its 1 arrivals",
        ),
        ("wgmma_fence();", "wgmma_fence(sum);", r"accumulators of products that are still under way"),
        ("wgmma_wait<0>(sum);", "", r"wgmma was under way"),
        ("take_registers<232>", "take_registers<240>", r"would have 66560 registers"),
        (
            "if (threadIdx.x == 0) {\n            for",
            "if (threadIdx.x < 2) {\n            for",
            r"phase 0 has all of its 1",
        ),
        ("128 * int(blockIdx.x)}, l2", "0, 0}, l2", r"3 coordinates for a tensor map of 2 dimensions"),
        ("a, 32 * k), wgmma", "a, 32 * k + 16 * (threadIdx.x == 128)), wgmma", r"different descriptors"),
        ("from + A_BYTES, 16, 1024", "from + A_BYTES + 262144 - 262144 * 2, 16, 1 << 17", r"wgmma reads"),
        ("tensor_load(to, a_map", "tensor_load(to + 64, a_map", r"not aligned to 128 bytes"),
        ("mbarrier_init(empty + 8 * stage, 2);", "", r"nobody has initialised the mbarrier"),
    ],
)
def test_mistakes_that_end_a_launch(before: str, after: str, said: str, cache: BuildCache) -> None:
    assert pipelined.CODE.count(before) == 1
    with pytest.raises(LaunchError) as raised:
        run(pipelined.CODE.replace(before, after), cache)
    assert re.search(said, str(raised.value)), raised.value


def test_who_polls_lets_the_copies_go_on(cache: BuildCache) -> None:
    code = pipelined.CODE
    for wait in ("mbarrier_wait(full + 8 * stage, parity);", "mbarrier_wait(empty + 8 * stage, parity ^ 1);"):
        assert code.count(wait) == 1
        code = code.replace(wait, f"while (!{wait.replace('wait', 'try_wait')[:-1]}) {{}}")
    assert run(code, cache) < 1e-3


LATE = """
#include "common/ptx/fences.cuh"
#include "common/ptx/wgmma.cuh"
extern "C" __global__ void test(float* seen)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    for (int i = threadIdx.x; i < 2048; i += 128) reinterpret_cast<__half*>(memory)[i] = __float2half(1.0f);
    fence_async_shared();
    __syncthreads();
    const uint64_t tile = wgmma_descriptor<128>(shared_address(memory), 16, 1024);
    float first[4] = {1, 1, 1, 1}, second[4] = {2, 2, 2, 2};
    const uint64_t upper = wgmma_descriptor<32>(shared_address(memory), 16, 256);
    wgmma_fence(first, second);
    wgmma<__half, 8>(first, upper, upper, 1);
    wgmma_commit();
    wgmma<__half, 8>(second, upper, upper, 0);
    wgmma_commit();
    seen[threadIdx.x] = first[0];
    wgmma_wait<1>(first);
    seen[128 + threadIdx.x] = first[0];
    seen[256 + threadIdx.x] = second[0];
    wgmma_wait<0>(second);
    seen[384 + threadIdx.x] = second[0];
}
"""


def test_accumulators_hold_nothing_until_they_are_waited_for(cache: BuildCache) -> None:
    seen = SmallKernel(LATE, cache, threads=128, smem=4096)(seen=np.zeros(512, np.float32))["seen"].reshape(4, 128)
    assert np.isnan(seen[0]).all()
    assert (seen[1] == 17).all()
    assert np.isnan(seen[2]).all()
    assert (seen[3] == 16).all()


def test_accumulators_want_a_fence(cache: BuildCache) -> None:
    code = LATE.replace("    wgmma_fence(first, second);\n", "")
    with pytest.raises(LaunchError, match="not behind a wgmma_fence"):
        SmallKernel(code, cache, threads=128, smem=4096)(seen=np.zeros(512, np.float32))


@pytest.mark.parametrize("at", ["{-8, 0}", "{0, -1}"])
@pytest.mark.parametrize("how", ["tensor_store", "tensor_add"])
def test_stores_begin_within_the_tensor_or_behind_it(how: str, at: str, cache: BuildCache) -> None:
    """A load may begin before the tensor, a store may not: an H200 stops there."""
    body = f"""#include "common/ptx/shared_address.cuh"
#include "common/ptx/tensor_copy.cuh"
extern __shared__ __align__(1024) unsigned char memory[];
extern "C" __global__ void test(float*, const __grid_constant__ TensorMap map)
{{
    if (threadIdx.x == 0) {how}(map, {at}, shared_address(memory));
}}
"""
    described = TensorMapArg("x_map", "x", 0, "fp32", (64, 16), (1, 64), (32, 8), 128, "output")
    with pytest.raises(LaunchError, match=f"{how}: coordinate . is -.; an H200 ends with an illegal instruction"):
        SmallKernel(body, cache, smem=4096, maps=[described])(x=np.zeros(1024, np.float32))


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("first", [1, 2, -1, 6])
@pytest.mark.parametrize("how", ["tensor_load", "tensor_store"])
def test_boxes_begin_at_multiples_of_16_bytes(how: str, first: int, dtype: str, cache: BuildCache) -> None:
    """Whatever the tensor's rows: an H200 ends with an illegal instruction at other columns."""
    copy = {
        "tensor_load": f"tensor_load(shared_address(memory), map, shared_address(memory) + 2048, {{{first}, 0}})",
        "tensor_store": f"tensor_store(map, {{{first}, 0}}, shared_address(memory))",
    }[how]
    body = f"""#include "common/ptx/mbarrier.cuh"
#include "common/ptx/tensor_copy.cuh"
extern __shared__ __align__(1024) unsigned char memory[];
extern "C" __global__ void test(float*, const __grid_constant__ TensorMap map)
{{
    if (threadIdx.x == 0) mbarrier_init(shared_address(memory) + 2048, 1);
    if (threadIdx.x == 0) {copy};
}}
"""
    described = TensorMapArg(
        "x_map", "x", 0, dtype, (64, 16), (1, 64), (32, 8), 128 if dtype == "fp32" else 64, "output"
    )
    said = "coordinate 0 is" if first > 0 or how == "tensor_load" else "coordinate . is -"
    with pytest.raises(LaunchError, match=f"{how}: {said}.*illegal instruction"):
        SmallKernel(body, cache, smem=4096, maps=[described])(x=np.zeros(1024, np.float32))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"offset": 4}, "must begin at a multiple of 16 bytes"),
        ({"strides": (1, 12)}, "strides must be multiples of 8 elements"),
        ({"strides": (2, 64)}, "rows must be contiguous"),
        ({"box": (12, 8)}, "its rows 64"),
        ({"box": (12, 8), "swizzle": 0}, "rows multiples of 8"),
        ({"box": (64, 257)}, "1 to 256 long"),
        ({"swizzle": 64}, "its rows 32"),
    ],
)
def test_tensors_that_tma_does_not_take(changed: dict[str, object], said: str, cache: BuildCache) -> None:
    given: dict[str, object] = {
        "name": "x_map", "storage": "x", "offset": 0, "dtype": "fp16", "extents": (64, 16), "strides": (1, 64),
        "box": (64, 8), "swizzle": 128, "role": "input",
    }  # fmt: skip
    described = TensorMapArg(**{**given, **changed})  # type: ignore[arg-type]
    body = """#include "common/ptx/tensor_map.cuh"
extern "C" __global__ void test(const __half*, const __grid_constant__ TensorMap map) { prefetch(map); }
"""
    with pytest.raises(LaunchError, match=said):
        SmallKernel(body, cache, maps=[described])(x=np.zeros(2048, np.float16))
