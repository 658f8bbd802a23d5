"""Runs an exported file without a GPU: launches go to the emulator, the CUDA runtime is the shim below."""

import re
import subprocess
from pathlib import Path

from autotune.core.settings import cache_folder
from autotune.emulator.support import emulator_support
from autotune.emulator.translation import kernel_table, shared_alignment, translate

_SHIM = """
#include <cstdlib>
#include <cstring>
#include <thread>
#include <cuda_runtime_api.h>
static cudaError_t last_error = cudaSuccess;
static emulator::Result last_result;
// The runtime's own declarations are there; these are definitions that stand in for its library.
const char* cudaGetErrorString(cudaError_t e) { return e == cudaErrorLaunchFailure ? last_result.message : "?"; }
cudaError_t cudaMalloc(void** p, size_t n) { return *p = std::aligned_alloc(256, (n + 256) / 256 * 256), cudaSuccess; }
cudaError_t cudaFree(void* p) { return std::free(p), cudaSuccess; }
cudaError_t cudaMemset(void* p, int x, size_t n) { return std::memset(p, x, n), cudaSuccess; }
cudaError_t cudaMemsetAsync(void* p, int x, size_t n, cudaStream_t) { return cudaMemset(p, x, n); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
  return std::memcpy(to, from, n), cudaSuccess;
}
cudaError_t cudaGetLastError() { const cudaError_t e = last_error; return last_error = cudaSuccess, e; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) { return std::strcpy(p->name, "emulator"), cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = nullptr, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 0.5f, cudaSuccess; }
// The driver's encoder: the emulator's own maps.
static int encode_tensor_map(void* map, int type, uint32_t rank, void* data, const uint64_t* extents,
                             const uint64_t* strides, const uint32_t* box, const uint32_t*, int, int swizzle, int,
                             int) {
  emulator::TensorMapContent made{};
  made.mark = emulator::TensorMapContent::expected_mark;
  made.address = reinterpret_cast<uint64_t>(data);
  made.rank = rank, made.type = type, made.swizzle = 16 << swizzle;
  for (uint32_t i = 0; i < rank; ++i) {
    made.extent[i] = extents[i], made.box[i] = box[i];
    if (i && strides[i - 1] % 16) return 1;
    if (i) made.stride[i - 1] = strides[i - 1];
  }
  return made.address % 16 ? 1 : (std::memcpy(map, &made, sizeof made), 0);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** found, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  return *found = reinterpret_cast<void*>(encode_tensor_map), cudaSuccess;
}
template <class K> cudaError_t cudaFuncSetAttribute(K*, cudaFuncAttribute, int) { return cudaSuccess; }
struct Config {
  dim3 grid, block;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
struct EmulatedLaunch {
  unsigned grid[3], block[3];
  size_t shared;
  EmulatedLaunch(dim3 g, dim3 b, size_t s = 0, cudaStream_t = nullptr)
      : grid{g.x, g.y, g.z}, block{b.x, b.y, b.z}, shared(s) {}
  template <class... P, class... A>
  void operator()(const char* name, void (*)(P...), A... given) const {
    constexpr emulator::Layout<P...> layout;
    char packed[layout.bytes + 1];
    size_t i = 0;
    (put<P>(packed + layout.offset[i++], static_cast<P>(given)), ...);
    const unsigned threads = std::thread::hardware_concurrency();
    if (emulator_launch(name, grid, block, shared, packed, layout.bytes, threads, &last_result))
      last_error = cudaErrorLaunchFailure;
  }
  template <class P> static void put(char* to, P value) { std::memcpy(to, &value, sizeof(P)); }
};
"""

_WITH_ATTRIBUTES = re.compile(r"status = cudaLaunchKernelEx\(&config, (\w+), (.*?)\);")
_LAUNCH = re.compile(r"([\w:]+(?:<[\w, ]+>)?)<<<(.+?)>>>\(\s*(.*?)\);", re.DOTALL)


def build_exported(text: str, folder: Path) -> Path:
    """Compile an exported file into a program that runs on the CPU."""
    kernels = dict.fromkeys(match[1] for match in (*_LAUNCH.finditer(text), *_WITH_ATTRIBUTES.finditer(text)))
    qualified = {name: name if "::" in name else _qualified(text, name) for name in kernels}
    # A shorter flush and no warm cache to care for: the emulator has no L2.
    # The configuration of a launch with attributes has names that are macros here.
    code = _WITH_ATTRIBUTES.sub(
        r"\1<<<config.grid, config.block, config.dynamicSmemBytes, stream>>>(\2); status = cudaGetLastError();", text
    )
    for there, here in (("cudaLaunchConfig_t", "Config"), (".gridDim", ".grid"), (".blockDim", ".block")):
        code = code.replace(there, here)
    code = _LAUNCH.sub(lambda m: f'EmulatedLaunch({m[2]})("{qualified[m[1]]}", &{m[1]}, {m[3]});', code)
    code = code.replace("std::max(2ll * l2, 1ll << 26)", "1").replace("times.size() < 20", "times.size() < 2")
    code = code.replace("seconds() < 1.0", "seconds() < 0.0")
    support = emulator_support(cache_folder())
    source, binary = folder / "exported.cpp", folder / "exported"
    source.write_text(_SHIM + translate(code, "exported.cu") + kernel_table(qualified.values(), shared_alignment(code)))
    command = [option for option in support.command(str(source), str(binary)) if option != "-shared"]
    done = subprocess.run([*command, "-pthread"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return binary


def _qualified(text: str, kernel: str) -> str:
    """Kernels of the check live in a namespace."""
    harness = text.find("namespace check {")
    definition = re.search(rf"__global__[^;{{]*\b{kernel}\(", text)
    assert definition is not None, kernel
    return f"check::{kernel}" if 0 <= harness < definition.start() else kernel


def run_exported(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build and run; the result has the exit code and what was printed."""
    return subprocess.run([build_exported(text, folder)], capture_output=True, text=True, check=False, timeout=250)
