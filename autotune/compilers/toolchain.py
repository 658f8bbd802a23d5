"""Where the compilers are: nvcc from a CUDA toolkit or from its wheel, g++, and the CUDA headers."""

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotune.core.child import Completed, run, signal_name
from autotune.core.confinement import compilers_environment
from autotune.core.errors import BuildError
from autotune.core.words import printable

_NO_NVCC = "no CUDA compiler found: pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl"
_DEFAULT_TOOLKIT = Path("/usr/local/cuda")
_NO_GXX = "no C++ compiler found: install g++ (Debian and Ubuntu: apt install g++) or set CXX"


@dataclass(frozen=True)
class Compiler:
    """A compiler that was found and answered. `include_dirs` are the CUDA headers that come with an nvcc."""

    name: str  # "nvcc" or "g++"
    path: Path
    version: str  # "13.0.88"
    include_dirs: tuple[Path, ...] = ()
    archs: tuple[str, ...] = ()  # nvcc: what it can compile for, without the letter of sm_90a

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_nvcc(arch: str | None = None) -> Compiler:
    """The first nvcc of `$AUTOTUNE_NVCC`, CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda and the wheel that knows `arch`.

    Raises:
        BuildError: there is none; the message says what to install.
    """
    explicit = os.environ.get("AUTOTUNE_NVCC")
    first: Compiler | None = None
    broken: list[str] = []
    for place in [Path(explicit)] if explicit else _nvcc_places():
        compiler = _probe_nvcc(place) if place.is_file() else None
        if isinstance(compiler, str):
            broken.append(compiler)
            continue
        if compiler is not None and (arch is None or arch.rstrip("af") in compiler.archs):
            return compiler
        first = first or compiler
    if first is not None:
        raise BuildError(f"{first} does not compile for {arch}; it knows {', '.join(first.archs)}")
    why = f": {'; '.join(broken)}" if broken else ""
    if explicit:
        raise BuildError(f"AUTOTUNE_NVCC={explicit} is no working nvcc; correct it or unset it{why}")
    raise BuildError(f"no CUDA compiler works{why}" if broken else _NO_NVCC)


def find_gxx() -> Compiler:
    """`$CXX` or g++.

    Raises:
        BuildError: there is none.
    """
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    compiler = None if path is None else _probe_gxx(Path(path))
    if isinstance(compiler, Compiler):
        return compiler
    why = "" if compiler is None else f": {compiler}"
    if name != "g++":
        raise BuildError(f"CXX={name} is no working C++ compiler; correct it or unset it{why}")
    raise BuildError(f"the C++ compiler does not work{why}" if compiler else _NO_GXX)


def cuda_include_dirs() -> tuple[Path, ...]:
    """Folders with the CUDA headers (`cuda_fp16.h` and what it includes), for host compilers.

    Raises:
        BuildError: there are none.
    """
    folders = [*find_nvcc().include_dirs, *(root / "include" for root in _wheel_roots())]
    for folder in folders:
        if (folder / "cuda_fp16.h").is_file():
            return tuple(other for other in (folder, folder / "cccl") if other.is_dir())
    raise BuildError("the CUDA headers are missing: pip install nvidia-cuda-runtime nvidia-cuda-cccl")


def _nvcc_places() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "nvcc"
    on_path = shutil.which("nvcc")
    if on_path:
        yield Path(on_path)
    yield _DEFAULT_TOOLKIT / "bin" / "nvcc"
    for root in _wheel_roots():
        yield root / "bin" / "nvcc"


def _wheel_roots() -> list[Path]:
    """`nvidia/cu13` in any folder of sys.path: where the CUDA wheels unpack."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return sorted((root for folder in folders for root in Path(folder).glob("cu[0-9]*")), reverse=True)


@cache
def _probe_nvcc(path: Path) -> Compiler | str:
    """The compiler, or why it is none."""
    said = _ask(path, "--version")
    version = re.search(r"V(\d+\.\d+\.\d+)", said.output)
    if said.status != 0 or version is None:
        return _broken(path, said)
    listed = _ask(path, "--list-gpu-code")
    archs = re.findall(r"^sm_\d+$", listed.output, re.MULTILINE)
    if listed.status != 0 or not archs:
        return _broken(path, listed)
    return Compiler("nvcc", path, version[1], _nvcc_include_dirs(path), tuple(archs))


def _nvcc_include_dirs(path: Path) -> tuple[Path, ...]:
    # nvcc on the PATH may be a wrapper script, so the folder is asked for, not guessed.
    with tempfile.NamedTemporaryFile(suffix=".cu") as empty:
        said = _ask(path, "--dryrun", "-cubin", "-o", "/dev/null", empty.name).output
    lines = re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", said, re.MULTILINE)
    folders = [Path(folder).resolve() for line in lines for folder in re.findall(r'"(?:-I)?(/[^"]*)"', line)]
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


@cache
def _probe_gxx(path: Path) -> Compiler | str:
    """The compiler, or why it is none."""
    said = _ask(path, "-dumpfullversion")
    if said.status != 0 or not said.output.strip():
        said = _ask(path, "--version")
    version = re.search(r"\d+(\.\d+)+", said.output) if said.status == 0 else None
    return _broken(path, said) if version is None else Compiler("g++", path, version[0])


def _ask(path: Path, *arguments: str) -> Completed:
    try:
        # A TMPDIR that does not exist stops nvcc; Python finds another folder then.
        environment = {**compilers_environment(), "TMPDIR": tempfile.gettempdir(), "LC_ALL": "C"}
        for _ in range(2):  # one that is killed is not one that does not work
            done = run([str(path.absolute()), *arguments], 60.0, environment=environment)
            if done.status >= 0:
                return done
    except OSError as error:
        raise BuildError(f"cannot start {path}: {error}") from error
    raise BuildError(f"{path} was killed by {signal_name(done.status)}, twice, from outside or for lack of memory")


def _broken(path: Path, said: Completed) -> str:
    lines = [line.strip() for line in said.output.splitlines() if line.strip()]
    answer = f"answers {printable(lines[-1][:200])!r}" if lines else "answers nothing"
    return f"{path} {answer}, exit status {said.status}"
