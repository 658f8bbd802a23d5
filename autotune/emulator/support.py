"""What every emulated build shares: the emulator's runtime, compiled once, and its headers, precompiled.

It is an entry of the build cache, sealed as others are: what is damaged is made again.
"""

import hashlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotune.compilers.running import compile_source
from autotune.compilers.sealed import SealedFolders, sealed_folders
from autotune.compilers.toolchain import Compiler, cuda_include_dirs, find_gxx
from autotune.compilers.upkeep import make_room
from autotune.core.errors import BuildError, CompileError
from autotune.core.settings import cache_limit, emulator_level

EMULATOR = Path(__file__).resolve().parent
KIND = "emulator-support"
PRELUDE = "emulator.hpp"
_TIMEOUT_S = 300.0
_FLAGS = (
    "-std=gnu++17", "-fPIC", "-pthread", "-w",
    # A library's own names stay its own: several candidates with kernels of one name are loaded side by side.
    "-fvisibility=hidden", "-fno-gnu-unique",
    # As CUDA has it: products and sums are fused, types may alias, nobody reads errno, nothing is thrown.
    "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-fwrapv",
    # A GPU refuses misaligned accesses; x86 mostly does not, so they are made to trap.
    "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",
    # A frame larger than the guard page below a stack must not step over it.
    "-fstack-clash-protection",
    "-fno-exceptions", "-fno-rtti", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
)  # fmt: skip
_TRACED_FLAGS = (
    # Calls at every access, every basic block, every misaligned address and every index that an array does not have.
    # The functions called are the emulator's own: no sanitizer's runtime is linked.
    "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "-fsanitize-coverage=trace-pc",
    "-fsanitize=alignment,bounds",
    # A vector's load stays one access; what lanes do together keeps one place in the code; source lines are known.
    "-fno-tree-sra", "-fno-ipa-sra", "-fno-tree-vectorize", "-fno-thread-jumps", "-fno-store-merging",
    "-fno-reorder-blocks", "-fno-reorder-blocks-and-partition", "-g1",
    "-DEMULATOR_TRACE",
)  # fmt: skip
_TRACED_LIBRARIES = ("-nodefaultlibs", "-lstdc++", "-lm", "-lc", "-lgcc_s", "-lgcc")
_TRAPS = ("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
_X86_64_V3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}


@dataclass(frozen=True)
class Support:
    """The shared part, ready to use. `key` stands for its whole content in the cache keys of candidates."""

    folders: SealedFolders
    key: str
    compiler: Compiler
    flags: tuple[str, ...]
    includes: tuple[str, ...]  # options
    traced: bool = False

    @property
    def folder(self) -> Path:
        return self.folders.folder(KIND, self.key)

    def is_sound(self) -> bool:
        """Whether it is undamaged, by the content of all its files."""
        return self.folders.is_sound(KIND, self.key)

    def close(self) -> None:
        """Say that it is in use once less: it may be removed where the cache is over its limit."""
        self.folders.give_back(KIND, self.key)

    def command(self, source: str, binary: str) -> list[str]:
        """How to make a shared library of a translated source."""
        objects = [str(self.folder / "runtime.o")]
        prelude = ("-include", str(self.folder / PRELUDE))
        exports = f"-Wl,--version-script={EMULATOR / 'runtime' / 'exports.map'}"
        output = ("-shared", exports, "-o", binary)
        libraries = _TRACED_LIBRARIES if self.traced else ()
        # The runtime first: of inline functions that both have, the linker then takes the ones that are not traced.
        return [str(self.compiler.path), *self.flags, *prelude, *self.includes, *output, *objects, source, *libraries]


def emulator_flags(traced: bool = False) -> tuple[str, ...]:
    """Compiler options of every emulated build. They name the processor's level, never the processor."""
    level = emulator_level()
    # What traced builds count is the loads that g++ leaves: at "g" it leaves all.
    flags = (f"-O{'1' if traced and level == 'g' else level}", *_FLAGS)
    if not traced:
        return (*flags, *_processor_flags())
    return (*(flag for flag in flags if flag not in _TRAPS), *_processor_flags(), *_TRACED_FLAGS)


def emulator_support(root: Path, traced: bool = False) -> Support:
    """The shared part from the cache folder `root`, built there if it is missing or damaged (about two seconds).

    It is in use until it is closed. `traced`: that of builds which report every access (`autotune.check`).

    Raises:
        BuildError: there is no compiler, no CUDA header, or the build failed.
    """
    compiler = find_gxx()
    includes = _include_options(cuda_include_dirs())
    flags = emulator_flags(traced)
    key = _key(str(compiler), includes, flags)
    folders = sealed_folders(root.absolute())
    _, made = folders.get(KIND, key, lambda folder: _build(folder, compiler, includes, traced))
    if made:
        make_room(folders.root, folders.folder(KIND, key), cache_limit())
    return Support(folders, key, compiler, flags, includes, traced)


@cache
def _processor_flags() -> tuple[str, ...]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return ()
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return ()
    return ("-march=x86-64-v3",) if set(known) >= _X86_64_V3 else ()


def _include_options(cuda: tuple[Path, ...]) -> tuple[str, ...]:
    own = [f"-I{EMULATOR / 'include'}", f"-I{EMULATOR / 'include' / 'cuda'}"]
    return (*own, *(f"-isystem{folder}" for folder in cuda))


@cache
def _key(compiler: str, includes: tuple[str, ...], flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join([compiler, *includes, *flags]).encode())
    for path in _inputs(includes):
        digest.update(str(path.name).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def _inputs(includes: tuple[str, ...]) -> Iterator[Path]:
    yield from sorted(path for path in EMULATOR.rglob("*") if path.suffix in (".h", ".hpp", ".cpp", ".map", ".py"))
    for option in includes:
        if option.startswith("-isystem"):
            yield from sorted(Path(option.removeprefix("-isystem")).glob("cuda_[bf][fp]*16.h*"))


def _build(folder: Path, compiler: Compiler, includes: tuple[str, ...], traced: bool) -> dict[str, Any]:
    (folder / PRELUDE).write_text('#include "emulator/emulator.hpp"\n', encoding="utf-8")
    options = (*emulator_flags(traced), *includes)
    plain = [option for option in (*emulator_flags(), *includes) if not option.startswith("-fsanitize")]
    plain.append("-O2")  # at any level: it is compiled once, and runs in every build
    runtime = [*plain, "-DEMULATOR_TRACE"] if traced else plain
    parts = ("runtime", "trace") if traced else ("runtime",)
    sources = [path for part in parts for path in sorted((EMULATOR / part).glob("*.cpp"))]
    # As one source: the headers of all take longer than they do.
    (folder / "runtime.cpp").write_text("".join(f'#include "{path}"\n' for path in sources), encoding="utf-8")
    _compile([str(compiler.path), *runtime, "-c", "runtime.cpp"], folder)
    header = ["-x", "c++-header", PRELUDE, "-o", f"{PRELUDE}.gch"]
    _compile([str(compiler.path), *options, *header], folder)
    return {"compiler": str(compiler), "files": [PRELUDE, f"{PRELUDE}.gch", "runtime.o"]}


def _compile(command: list[str], folder: Path) -> None:
    try:
        compile_source(command[0], command, folder, _TIMEOUT_S, lambda output: output[:2000])
    except CompileError as error:  # it is our own source
        raise BuildError(f"the emulator does not compile with {error}") from error
