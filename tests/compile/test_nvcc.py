import shutil
from pathlib import Path

import pytest

from autotune.compilers import toolchain
from autotune.compilers.artifact import KernelReport
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, CubinRequest, build_cubin
from autotune.compilers.pool import BuildPool
from autotune.compilers.toolchain import Compiler, find_nvcc
from autotune.core.errors import BuildError, CompileError, CompileTimeout
from autotune.families.source import Include
from tests.sources import kernel_source

# Half types, a header beside the source, static and dynamic shared memory, and a local array that needs a stack.
BODY = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "common/scale.cuh"
extern "C" __global__ void scale_rows(const __half* in, __nv_bfloat16* out, int n) {
    extern __shared__ __align__(16) unsigned char smem[];
    __shared__ float factor[64];
    float* row = reinterpret_cast<float*>(smem);
    if (threadIdx.x < 64) factor[threadIdx.x] = SCALE;
    row[threadIdx.x] = __half2float(in[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = __float2bfloat16(row[n] * factor[n % 64]);
}
extern "C" __global__ void shuffle(const float* in, float* out, int n) {
    float local[32];
    for (int i = 0; i < 32; ++i) local[i] = in[i];
    for (int i = 0; i < 32; ++i) local[(i * n) % 32] += in[i * n];
    out[threadIdx.x] = local[n % 32];
}
"""
SOURCE = kernel_source(BODY, includes=(Include("common/scale.cuh", "#define SCALE 2.0f\n"),))


def nvccs() -> dict[str, Path]:
    """Every version of nvcc on this machine: a toolkit's and the wheel's differ."""
    found = [toolchain._probe_nvcc(place) for place in toolchain._nvcc_places() if place.is_file()]
    return {str(compiler): compiler.path for compiler in found if isinstance(compiler, Compiler)}


def test_there_is_a_compiler() -> None:
    assert nvccs()


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("nvcc", nvccs().values(), ids=nvccs())
def test_every_architecture_with_every_compiler(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch, nvcc: Path, arch: str
) -> None:
    monkeypatch.setenv("AUTOTUNE_NVCC", str(nvcc))
    artifact = build_cubin(SOURCE, arch, cache)
    assert artifact.path.read_bytes()[:4] == b"\x7fELF"
    assert artifact.compiler == str(find_nvcc()) == f"nvcc {find_nvcc().version}"
    reports = {report.kernel: report for report in artifact.kernels}
    assert set(reports) == {"scale_rows", "shuffle"}
    assert reports["scale_rows"].static_smem == 64 * 4
    assert reports["scale_rows"].stack_bytes == reports["scale_rows"].spill_bytes == 0
    assert reports["shuffle"].stack_bytes == 32 * 4
    assert reports["shuffle"].static_smem == 0
    assert all(4 <= report.registers <= 64 for report in reports.values())


def test_the_same_source_gives_the_same_binary_wherever_it_is_built(tmp_path: Path) -> None:
    first = build_cubin(SOURCE, "sm_90a", BuildCache(tmp_path / "one"))
    second = build_cubin(SOURCE, "sm_90a", BuildCache(tmp_path / "another place"))
    assert first.binary_hash == second.binary_hash
    assert (first.cached, second.cached) == (False, False)
    assert build_cubin(SOURCE, "sm_90a", BuildCache(tmp_path / "one")).cached


def test_names_that_differ_give_identical_binaries_with_other_keys(cache: BuildCache) -> None:
    template = 'constexpr int {0} = 4;\nextern "C" __global__ void k(int* x) {{ x[0] = {0}; }}\n'
    one, two = (build_cubin(kernel_source(template.format(name)), "sm_80", cache) for name in ("WARPS", "ROWS"))
    assert one.key != two.key
    assert one.binary_hash == two.binary_hash


def test_spills_are_reported(cache: BuildCache) -> None:
    body = (
        'extern "C" __global__ void __launch_bounds__(1024) heavy(const float* in, float* out, int n) {\n'
        "    float x[128];\n"
        "    #pragma unroll\n    for (int i = 0; i < 128; ++i) x[i] = in[i * n];\n"
        "    for (int k = 0; k < n; ++k) {\n"
        "        #pragma unroll\n        for (int i = 0; i < 128; ++i) x[i] = x[i] * x[(i * 7 + 1) % 128] + in[k];\n"
        "    }\n"
        "    #pragma unroll\n    for (int i = 0; i < 128; ++i) out[i * n] = x[i];\n}\n"
    )
    (report,) = build_cubin(kernel_source(body), "sm_90a", cache).kernels
    assert report.registers == 64
    assert report.spill_bytes > 100


def test_nan_and_division_are_not_optimised_away(cache: BuildCache) -> None:
    body = 'extern "C" __global__ void k(float* x) { x[0] = x[1] / x[2]; x[3] = (x[4] != x[4]) ? 1.0f : x[4]; }\n'
    assert build_cubin(kernel_source(body), "sm_80", cache).kernels[0].registers > 8  # a full division, not an estimate


def test_a_source_that_does_not_compile(cache: BuildCache) -> None:
    source = kernel_source('extern "C" __global__ void k(int* x) { x[0] = MISSING; }\n')
    for _ in range(2):  # the second time from the cache
        with pytest.raises(CompileError) as caught:
            build_cubin(source, "sm_80", cache)
        lines = str(caught.value).splitlines()
        assert lines[0].endswith('for sm_80: kernel.cu(2): error: identifier "MISSING" is undefined')
        assert "x[0] = MISSING" in lines[1]
        assert len(lines) <= 6


def test_too_much_static_shared_memory_is_the_assemblers_error(cache: BuildCache) -> None:
    source = kernel_source(
        'extern "C" __global__ void k(int* x) {\n'
        "    __shared__ int s[20000]; s[x[1]] = x[0]; __syncthreads(); x[0] = s[x[2]];\n}\n"
    )
    with pytest.raises(CompileError, match="uses too much shared data"):
        build_cubin(source, "sm_80", cache)


def test_a_header_that_is_missing(cache: BuildCache) -> None:
    with pytest.raises(CompileError, match=r"common/none\.cuh: No such file"):
        build_cubin(kernel_source('#include "common/none.cuh"\n'), "sm_80", cache)


def test_a_compiler_that_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(CompileTimeout, match=r"took longer than the limit of 0\.05 s for sm_80"):
        build_cubin(SOURCE, "sm_80", BuildCache(tmp_path), timeout_s=0.05)
    assert build_cubin(SOURCE, "sm_80", BuildCache(tmp_path)).cached is False


def test_an_architecture_that_the_compiler_does_not_know(cache: BuildCache) -> None:
    with pytest.raises(BuildError, match="does not compile for sm_10; it knows sm_"):
        build_cubin(SOURCE, "sm_10", cache)


def test_no_host_compiler_is_not_the_sources_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = find_nvcc()
    for tool in ("sh", "cat", "rm"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    monkeypatch.setenv("AUTOTUNE_NVCC", str(nvcc.path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="nvcc fatal"):
        build_cubin(SOURCE, "sm_80", BuildCache(tmp_path / "cache"))


def test_builds_ahead_in_a_pool(tmp_path: Path) -> None:
    bodies = [f'extern "C" __global__ void k(int* x) {{ x[0] = {i % 3}; }}\n' for i in range(4)]
    with BuildPool(BuildCache(tmp_path), jobs=2) as pool:
        futures = [pool.submit(CubinRequest(kernel_source(body), "sm_90a")) for body in bodies]
        artifacts = [future.result() for future in futures]
        broken = pool.submit(CubinRequest(kernel_source("nonsense\n"), "sm_90a"))
        with pytest.raises(CompileError, match="error"):
            broken.result()
    assert artifacts[0].key == artifacts[3].key
    assert len({artifact.binary_hash for artifact in artifacts}) == 3
    (report,) = artifacts[1].kernels
    assert report == KernelReport("k", report.registers, 0, 0)
