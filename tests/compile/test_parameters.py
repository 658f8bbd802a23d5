"""Where nvcc puts parameters: tensor maps at multiples of 64 bytes of the constant bank, not of the buffer."""

from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.compilers.parameters import parameter_places
from autotune.core.errors import BuildError
from tests.sources import kernel_source

CODE = """struct alignas(64) Map { unsigned long long words[16]; };
struct View { float* data; long long strides[3]; };
extern "C" __global__ void maps(const __grid_constant__ Map a, const __grid_constant__ Map b, int* p, int n, float x)
{
    p[threadIdx.x] = n + int(a.words[threadIdx.x % 16] + b.words[threadIdx.x % 16]) + int(x);
}
struct Many { Map at[40]; };
extern "C" __global__ void large(const __grid_constant__ Many many, int* p, int n)
{
    p[threadIdx.x] = n + int(many.at[n % 40].words[threadIdx.x % 16]);
}
extern "C" __global__ void plain(View v, int n, float x, double y) { v.data[threadIdx.x] = n + x + float(y); }
"""
BANK = {70: 0x160, 75: 0x160, 80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210}
"""Where parameters begin in the constant bank; later architectures: 0x380."""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_places(arch: str, cache: BuildCache) -> None:
    path = build_cubin(kernel_source(CODE), arch, cache).path
    first, second, pointer, number, factor = parameter_places(path, "maps")
    bank = BANK.get(int(arch.removeprefix("sm_").rstrip("af")), 0x380)
    assert (bank + first) % 64 == 0
    assert (second - first, pointer - second, number - pointer, factor - number) == (128, 128, 8, 4)
    assert 0 <= first < 64
    assert parameter_places(path, "plain") == (0, 32, 36, 40)
    many, pointer, number = parameter_places(path, "large")  # more than the 4 KB that were all before CUDA 12.1
    assert (pointer - many, number - pointer) == (40 * 128, 8)
    assert bank < BANK[90] or (bank + many) % 64 == 0  # where there is TMA


def test_what_cannot_be_read(cache: BuildCache, tmp_path: Path) -> None:
    path = build_cubin(kernel_source(CODE), "sm_90a", cache).path
    with pytest.raises(BuildError, match=r"cannot read the parameters of none in .*it is not there"):
        parameter_places(path, "none")
    damaged = tmp_path / "damaged.cubin"
    damaged.write_bytes(path.read_bytes()[:600])
    with pytest.raises(BuildError, match="cannot read the parameters"):
        parameter_places(damaged, "maps")
