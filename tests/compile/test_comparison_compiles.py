"""The kernels that compare results on a GPU: for every architecture, without a warning or a spill."""

from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.devices.comparison_tables import RECORD_WORDS, THREADS, comparison_source
from tests.compile.strictly import compile_strictly


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_without_warnings_or_spills(arch: str, tmp_path: Path, cache: BuildCache) -> None:
    source = comparison_source()
    assert compile_strictly(source, arch, tmp_path) == ""
    kernels = build_cubin(source, arch, cache).kernels
    assert {kernel.kernel for kernel in kernels} == set(source.plan.kernels)
    assert [kernel.spill_bytes for kernel in kernels] == [0] * len(kernels)
    assert {kernel.static_smem for kernel in kernels} == {8 * RECORD_WORDS * THREADS}
