"""The build cache: content-addressed folders, each a binary with its source beside it.

An entry is made in a temporary folder and renamed into place, so a reader never sees half of one. Processes that want
the same entry wait for one build (a file lock, which the kernel drops when its holder dies). Compile errors are
entries too: they are as deterministic as successes. Time-outs and failures of the machinery are not.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from autotune.compilers.artifact import Artifact, KernelReport
from autotune.core.errors import BuildError, CompileError, CompileTimeout
from autotune.core.settings import cache_folder
from autotune.families.source import SOURCE_NAME, KernelSource

_RECORD = "artifact.json"
_ATTEMPTS = 3

_HEARD = (
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
)  # fmt: skip
"""Variables of the environment that change what compilers make of the same command."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the binary. `extra`: content hashes of whatever else goes in (the emulator's headers)."""

    kind: Literal["cubin", "emulator"]
    source: KernelSource
    compiler: str  # with version: "nvcc 13.0.88"
    arch: str
    flags: tuple[str, ...]
    extra: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Hash (32 hex digits) of all that decides the binary, the compilers' variables of the environment included.

        The source's header does not: it is nothing but comments (`KernelSource` sees to it).
        """
        heard = [f"{name}={os.environ[name]}" for name in _HEARD if os.environ.get(name)]
        parts = [self.kind, self.source.body, self.compiler, self.arch, *self.flags, "", *self.extra, "", *heard]
        parts += [text for include in self.source.includes for text in (include.name, include.text)]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(f"{len(part)}:".encode() + part.encode())
        return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Built:
    """What a compile step leaves in its folder: the binary's file name, and what the compiler reported."""

    binary: str
    kernels: tuple[KernelReport, ...]


Compile = Callable[[Path], Built]
"""Compile `kernel.cu` in the folder given (its headers lie in `common/` there). Raises CompileError or BuildError."""


class BuildCache:
    """A folder of entries shared by any number of threads and processes of one machine."""

    def __init__(self, root: Path | None = None) -> None:
        """`root`: default `$AUTOTUNE_CACHE`, else the user's cache folder."""
        self.root = cache_folder() if root is None else root

    def build(self, recipe: Recipe, compile_step: Compile) -> Artifact:
        """The entry of the recipe, built by `compile_step` if it is not there or is damaged.

        Raises:
            CompileError: the compiler refuses the source, now or when it was first built.
            BuildError: the machinery failed.
        """
        key = recipe.key
        for attempt in range(_ATTEMPTS):
            try:
                return self.find(recipe.kind, key) or self._make_alone(recipe, key, compile_step)
            except BuildError as error:  # somebody may be emptying the cache
                if attempt + 1 == _ATTEMPTS or not isinstance(error.__cause__, FileNotFoundError):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def find(self, kind: str, key: str) -> Artifact | None:
        """The entry if it is there and undamaged.

        Raises:
            CompileError: the entry says that the source does not compile.
        """
        folder = self._folder(kind, key)
        try:
            record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            if record.pop("seal") != _seal(record) or record["key"] != key:
                return None
            artifact = None if record["error"] else _read_artifact(folder, record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # absent or damaged: the caller builds it
        if artifact is None:
            raise CompileError(record["error"])
        return artifact

    def _make_alone(self, recipe: Recipe, key: str, compile_step: Compile) -> Artifact:
        with self._lock(key):
            # Another process may have built it while we waited.
            return self.find(recipe.kind, key) or self._make(recipe, key, compile_step)

    def _make(self, recipe: Recipe, key: str, compile_step: Compile) -> Artifact:
        with self._workspace(key) as workspace:
            folder = workspace / "entry"
            write_source(recipe.source, folder)
            start = time.monotonic()
            outcome = _attempt(compile_step, folder)
            record = _record(recipe, key, folder, outcome, time.monotonic() - start)
            record["seal"] = _seal(record)
            (folder / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
            self._publish(folder, self._folder(recipe.kind, key))
        if isinstance(outcome, CompileError):
            raise outcome
        artifact = self.find(recipe.kind, key)
        if artifact is None:
            said = f"an entry vanished from the build cache {self.root}: does something delete files there?"
            raise BuildError(said) from FileNotFoundError(said)
        return replace(artifact, cached=False)

    def _publish(self, folder: Path, entry: Path) -> None:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            entry.rename(folder.parent / "damaged")  # nothing else can be here; it goes with the workspace
        try:
            folder.rename(entry)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else somebody's equal entry got there first
                raise

    def _folder(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / key

    @contextlib.contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        path = self.root / "locks" / key
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # Who waits for the removed file gets it and finds the entry; who makes a new one finds the entry too.
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _workspace(self, key: str) -> Iterator[Path]:
        with self._writing():
            parent = self.root / "tmp"
            parent.mkdir(parents=True, exist_ok=True)
            _sweep(parent)
            workspace = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=parent))
            try:
                yield workspace
            finally:
                shutil.rmtree(workspace, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BuildError(f"cannot write the build cache {self.root}: {error}; set AUTOTUNE_CACHE") from error


def write_source(source: KernelSource, folder: Path) -> Path:
    """Write `kernel.cu` and its headers, so that the folder compiles on its own; returns the path of the former."""
    for include in source.includes:
        path = folder / include.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(include.text, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SOURCE_NAME
    path.write_text(source.code, encoding="utf-8")
    return path


def _attempt(compile_step: Compile, folder: Path) -> Built | CompileError:
    try:
        return compile_step(folder)
    except CompileTimeout:
        raise
    except CompileError as error:
        return error


def _record(recipe: Recipe, key: str, folder: Path, outcome: Built | CompileError, seconds: float) -> dict[str, Any]:
    built = outcome if isinstance(outcome, Built) else None
    return {
        "key": key,
        "kind": recipe.kind,
        "candidate": recipe.source.candidate.key,  # the first that asked; others with the same code share the entry
        "compiler": recipe.compiler,
        "arch": recipe.arch,
        "flags": list(recipe.flags),
        "seconds": round(seconds, 4),
        "error": None if built else str(outcome),
        "binary": built and built.binary,
        "binary_hash": built and _file_hash(folder / built.binary),
        "kernels": [asdict(kernel) for kernel in built.kernels] if built else [],
    }


def _read_artifact(folder: Path, record: dict[str, Any]) -> Artifact:
    binary = folder / record["binary"]
    if _file_hash(binary) != record["binary_hash"]:
        raise ValueError("the entry is damaged")
    source = folder / SOURCE_NAME
    source.stat()
    return Artifact(
        kind=record["kind"],
        path=binary,
        source_path=source,
        key=record["key"],
        binary_hash=record["binary_hash"],
        kernels=tuple(KernelReport(**kernel) for kernel in record["kernels"]),
        compiler=record["compiler"],
        seconds=record["seconds"],
        cached=True,
    )


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _seal(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def _sweep(folder: Path, older_than_s: float = 86400.0) -> None:
    """Remove workspaces that killed processes left behind."""
    for workspace in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - workspace.stat().st_mtime > older_than_s:
                shutil.rmtree(workspace, ignore_errors=True)
