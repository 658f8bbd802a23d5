"""Emulated binaries: a rendered source compiled by g++ into a shared library that runs it on the CPU."""

import platform
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache, Built, Recipe
from autotune.compilers.running import compile_source
from autotune.core.errors import CompileError
from autotune.emulator.support import Support, emulator_support
from autotune.emulator.translation import (
    for_tracing,
    kernel_table,
    shared_alignment,
    translate,
    unroll_products,
    unset_variables,
)
from autotune.families.flags import for_hosts
from autotune.families.source import SOURCE_NAME, KernelSource
from autotune.gpus.spec import capability_of

_BINARY = "kernel.so"
_TRANSLATED = "translated"
_TWINS = "common/ptx/"


@dataclass(frozen=True)
class EmulatorRequest:
    """An emulated binary to build, for a `BuildPool`: as `build_emulator` is told."""

    source: KernelSource
    traced: bool = False
    arch: str = ""

    def build(self, cache: BuildCache) -> Artifact:
        return build_emulator(self.source, cache, traced=self.traced, arch=self.arch)


def build_emulator(
    source: KernelSource, cache: BuildCache, *, traced: bool = False, arch: str = "", timeout_s: float = 120.0
) -> Artifact:
    """The shared library of a rendered source, from the cache or built now.

    `traced`: one that reports every access, for `autotune.check`. `arch`: of the GPU in question ("sm_90a"), for code
    that does otherwise on some; it sees `EMULATOR_ARCH` in place of `__CUDA_ARCH__`.

    Raises:
        CompileError: the compiler refuses the source (CompileTimeout: it took longer than `timeout_s`).
        BuildError: there is no compiler, or it could not run.
    """
    with closing(emulator_support(cache.root, traced)) as support:
        kernels = source.plan.kernels
        flags, beside = (*support.flags, *for_hosts(source.flags)), (support.key, arch, *kernels)
        recipe = Recipe("emulator", source, str(support.compiler), platform.machine(), flags, beside)

        def compile_step(folder: Path) -> Built:
            try:
                return _compile(support, source, arch, folder, timeout_s)
            except CompileError:
                if support.is_sound():
                    raise
            # Not the source's fault: what all builds share has been damaged since it was found.
            with closing(emulator_support(cache.root, traced)) as mended:
                return _compile(mended, source, arch, folder, timeout_s)

        return cache.build(recipe, compile_step)


def _compile(support: Support, source: KernelSource, arch: str, folder: Path, timeout_s: float) -> Built:
    translated = folder / _TRANSLATED
    for include in source.includes:
        _write(translated / include.name, _translate(support, include.text, include.name))
    alignment = max(shared_alignment(text) for text in (source.code, *(include.text for include in source.includes)))
    table = kernel_table(source.plan.kernels, alignment)
    code = _arch_macro(arch) + _translate(support, source.code, SOURCE_NAME) + table
    _write(translated / "kernel.cpp", code)
    command = [*support.command(f"{_TRANSLATED}/kernel.cpp", _BINARY), *for_hosts(source.flags)]
    compile_source(str(support.compiler), [*command, f"-I{_TRANSLATED}"], folder, timeout_s, _first_errors)
    shutil.rmtree(translated)
    return Built(_BINARY, ())


def _translate(support: Support, text: str, file_name: str) -> str:
    # Twins of instructions compute for a whole warp, on arrays of which they set every element.
    text = text if file_name.startswith(_TWINS) else unset_variables(text)
    translated = unroll_products(translate(text, file_name))
    return for_tracing(translated) if support.traced else translated


def _arch_macro(arch: str) -> str:
    """`__CUDA_ARCH__` of `sm_90a` is 900."""
    return f"#define EMULATOR_ARCH {10 * capability_of(arch)}\n" if arch else ""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _first_errors(output: str) -> str:
    lines = output.splitlines()
    return "\n".join(([line for line in lines if "error" in line.lower()] or lines)[:6])
