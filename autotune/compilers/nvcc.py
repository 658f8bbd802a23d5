"""Cubins: a rendered source compiled by nvcc for one architecture."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache, Built, Recipe
from autotune.compilers.ptxas import parse_ptxas
from autotune.compilers.running import compile_source
from autotune.compilers.toolchain import Compiler, find_gxx, find_nvcc
from autotune.core.errors import BuildError
from autotune.families.flags import merged
from autotune.families.source import NVCC_FLAGS, SOURCE_NAME, KernelSource

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")
"""What every template is compiled for in the tests."""

FLAGS = (
    # Arithmetic as IEEE has it, written out because it is what verification rests on: --use_fast_math assumes away
    # nothing about NaN and -inf, but it flushes denormals and replaces division, which a kernel asks for by intrinsics.
    *NVCC_FLAGS, "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-fmad=true",
    "-Xptxas", "-v", "-I", ".",
)  # fmt: skip
"""Options of every cubin, beside `-cubin -arch=…` and a template's own."""

_CUBIN = "kernel.cubin"
_HEADERS = (
    "cuda_[bf][fp]*.h*",
    "cooperative_groups*",
    "mma.h",
    "cuda_pipeline*.h",
    "crt/mma.h*",
    "cooperative_groups/*.h",
)


@dataclass(frozen=True)
class CubinRequest:
    """A cubin to build, for a `BuildPool`."""

    source: KernelSource
    arch: str
    timeout_s: float = 120.0

    def build(self, cache: BuildCache) -> Artifact:
        return build_cubin(self.source, self.arch, cache, timeout_s=self.timeout_s)


def build_cubin(source: KernelSource, arch: str, cache: BuildCache, *, timeout_s: float = 120.0) -> Artifact:
    """The cubin of a rendered source for `arch` ("sm_90a"), from the cache or built now.

    Raises:
        CompileError: the compiler refuses the source (CompileTimeout: it took longer than `timeout_s`).
        BuildError: there is no compiler, it does not know the architecture, or it could not run.
    """
    nvcc = find_nvcc(arch)
    flags = merged(FLAGS, source.flags)
    recipe = Recipe("cubin", source, str(nvcc), arch, flags, _beside(nvcc))
    return cache.build(recipe, lambda folder: _compile(nvcc, arch, flags, folder, timeout_s))


@cache
def _beside(nvcc: Compiler) -> tuple[str, str]:
    """What it reads beside the source: headers of the toolkit that kernels include, and what the host's compiler is,
    which preprocesses. Another toolkit may call itself the same."""
    digest = hashlib.sha256()
    for folder in nvcc.include_dirs:
        for path in sorted(path for pattern in _HEADERS for path in folder.glob(pattern) if path.is_file()):
            digest.update(f"{path.name}:{path.stat().st_size}:".encode() + path.read_bytes())
    try:
        host = str(find_gxx())
    except BuildError:  # nvcc will say so
        host = ""
    return digest.hexdigest()[:32], host


def _compile(nvcc: Compiler, arch: str, flags: Sequence[str], folder: Path, timeout_s: float) -> Built:
    command = [str(nvcc.path.absolute()), "-cubin", f"-arch={arch}", *flags, "-o", _CUBIN, SOURCE_NAME]
    output = compile_source(str(nvcc), command, folder, timeout_s, first_errors, target=f" for {arch}")
    return Built(_CUBIN, parse_ptxas(output))


def first_errors(output: str, limit: int = 6) -> str:
    """The first useful lines of a compiler's output: errors with the lines that explain them, no remarks or infos."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("ptxas info") and "bytes stack frame" not in line]
    start = next((i for i, line in enumerate(lines) if re.search(r"\b(error|fatal)\b", line)), 0)
    return "\n".join(lines[start : start + limit])
