"""Hopper's instructions: ptxas takes every shape of wgmma, tensor maps reach kernels and exports; no warnings."""

import re
import subprocess
from pathlib import Path

import pytest

from autotune.answers.best import Best
from autotune.answers.export_text import export_text
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.compilers.toolchain import find_nvcc
from autotune.core.resources import resource_root
from autotune.core.values import Config
from autotune.families.includes import collect_includes
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template, load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.strictly import compile_strictly
from tests.sources import kernel_source

H200 = gpu("h200")
FAMILY = load_template(Path(__file__).parents[1] / "kernels" / "tma_rows.cu.j2")
PROBLEM = get_op("forward").problem(HS=64, NH_kv=3, dtype="bf16")

SHAPES = """
#include "common/ptx/wgmma.cuh"
extern "C" __global__ void multiply(float* out, uint64_t a, uint64_t b)
{
    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) d[i] = 0.0f;
    uint32_t registers[4] = {threadIdx.x, 1, 2, 3};
    wgmma_fence(d, registers);
    wgmma<TYPE, N>(d, a, b, 1);
    wgmma<TYPE, N>(d, registers, b, 1);
    if constexpr (sizeof(TYPE) == 2) wgmma<TYPE, N, true, true>(d, a, b, 1);
    wgmma_commit();
    wgmma_wait<0>(d);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) out[threadIdx.x * (N / 2) + i] = d[i];
}
"""

ALL_WRAPPERS = """
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/wgmma.cuh"
extern "C" __global__ void __launch_bounds__(256, 1) __cluster_dims__(2, 1, 1)
use(float* out, const __grid_constant__ TensorMap map)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const SharedAddress start = shared_address(memory), barrier = start + 4096;
    if (threadIdx.x < 128) {
        release_registers<40>();
        if (threadIdx.x == 0) {
            prefetch(map);
            mbarrier_init(barrier, 1);
            fence_mbarrier_init();
            mbarrier_arrive_expect(barrier, 4096);
            tensor_load(start, map, barrier, {0});
            tensor_load(start, map, barrier, {0, 1}, l2_evict_first());
            tensor_load(start, map, barrier, {0, 1, 2});
            tensor_load(start, map, barrier, {0, 1, 2, 3}, l2_evict_last());
            tensor_load(start, map, barrier, {0, 1, 2, 3, 4});
            tensor_load_multicast(start, map, barrier, {0, 1}, 3);
            tensor_load_multicast(start, map, barrier, {0, 1, 2, 3}, 3, l2_evict_first());
            bulk_load(start, out, 64, barrier);
            mbarrier_arrive(barrier);
            mbarrier_arrive_remote(barrier, cluster_rank() ^ 1);
        }
        named_barrier_arrive<256>(1);
    } else {
        take_registers<232>();
        named_barrier<256>(1);
        mbarrier_wait(barrier, 0);
        const uint32_t registers[4] = {1, 2, 3, threadIdx.x};
        stmatrix_transposed(start + 16 * threadIdx.x, registers);
        fence_async_shared();
        if (threadIdx.x == 128) {
            tensor_store(map, {0, 1}, start);
            tensor_add(map, {0, 1, 2, 3, 4}, start);
            bulk_store(out, start, 64);
            bulk_add(out, start, 64);
            bulk_commit();
            bulk_wait_read<1>();
            bulk_wait<0>();
        }
    }
    cluster_sync();
}
"""


def compiled(body: str, folder: Path) -> str:
    includes = collect_includes(body, (resource_root("templates"),), "a test")
    return compile_strictly(kernel_source(body, includes=includes), "sm_90a", folder)


@pytest.mark.parametrize("first", range(0, 32, 8))
def test_every_shape(first: int, tmp_path: Path) -> None:
    """Each in a kernel of its own; types in turns, so that each is seen with every eighth width and its neighbours."""
    types = ("__half", "__nv_bfloat16", "float")
    text = "".join(
        SHAPES.replace("multiply", f"multiply_{n}").replace("TYPE", types[n // 8 % 3]).replace("N>", f"{n}>")
        .replace("N, ", f"{n}, ").replace("N /", f"{n} /")
        for n in (8 * (first + i + 1) for i in range(8))
    )  # fmt: skip
    assert compiled(text, tmp_path) == ""


def test_every_wrapper(tmp_path: Path) -> None:
    assert compiled(ALL_WRAPPERS, tmp_path) == ""


def test_a_family_with_maps(tmp_path: Path) -> None:
    source = render(FAMILY, PROBLEM, Space(FAMILY, PROBLEM, H200).default(), H200)
    assert compile_strictly(source, "sm_90a", tmp_path) == ""


def test_an_export_with_maps(tmp_path: Path) -> None:
    candidate = Space(FAMILY, PROBLEM, H200).candidate(Space(FAMILY, PROBLEM, H200).default())
    answer = Best("default", "none", None, PROBLEM, H200, candidate, template=FAMILY)
    path = tmp_path / "exported.cu"
    path.write_text(export_text(answer, path.name, True))
    line = re.search(r"^// compile: +nvcc (.*)$", path.read_text(), re.MULTILINE)
    assert line is not None
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"]
    command = [str(find_nvcc().path), *strict, *line[1].split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


SERIALISED = """
#include "common/ptx/wgmma.cuh"
extern "C" __global__ void serialised(float* out, uint64_t a, uint64_t b, int n)
{
    float d[32], e[32];
    for (int i = 0; i < 32; ++i) d[i] = e[i] = 0.0f;
    wgmma_fence(d);
    for (int k = 0; k < n; ++k) {
        wgmma<__half, 64>(d, a, b + k, 1);
        wgmma_commit();
        out[k] = d[k % 4 * 8];  // under way
        wgmma_wait<1>();
    }
    wgmma_wait<0>(d);
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = d[i];
}
"""

IGNORED = """
#include "common/ptx/registers.cuh"
extern "C" __global__ void ignored(float* out)
{
    if (threadIdx.x < 128)
        release_registers<40>();
    else
        take_registers<232>();
    out[threadIdx.x] = 1;
}
"""


@pytest.mark.parametrize(("body", "said"), [(SERIALISED, "serialized"), (IGNORED, "'setmaxnreg' ignored")])
def test_what_ptxas_does_not_do_is_reported(body: str, said: str, cache: BuildCache) -> None:
    """Today's compiler says it in the words that are read."""
    includes = collect_includes(body, (resource_root("templates"),), "a test")
    (report,) = build_cubin(kernel_source(body, includes=includes), "sm_90a", cache).kernels
    assert said in report.loss


@pytest.mark.parametrize(
    ("HS", "changed"),
    [
        (64, {"BLOCK_M": 128}),
        (64, {"BLOCK_M": 128, "ORDER": "late", "STAGGER": True}),
        (128, {}),
        (96, {"ORDER": "early"}),
        (96, {"DQ_OWNER": True}),
        (64, {"DQ_OWNER": True, "BLOCK_M": 128}),
        (128, {"DQ_OWNER": True}),
        (32, {"DQ_OWNER": True, "BLOCK_N": 192}),
    ],
    ids=str,
)
def test_gradients_that_keep_weights_have_registers(HS: int, changed: Config, cache: BuildCache) -> None:
    """Where P stays in fp32 until dS by the family's count, ptxas neither spills nor serialises wgmma."""
    family = find_template("backward", "flash_wgmma")
    problem = get_op("backward").problem(HS=HS, dtype="fp16", causal="STAGGER" not in changed)
    source = render(family, problem, {**family.defaults, **changed}, H200)
    assert "KEPT = true" in source.body
    for report in build_cubin(source, H200.arch, cache).kernels:
        assert (report.spill_bytes, report.loss) == (0, ""), report.kernel
