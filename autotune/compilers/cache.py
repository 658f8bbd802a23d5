"""The build cache: sealed folders, each a binary with its source beside it.

Compile errors are entries too: they are as deterministic as successes. Time-outs and failures of the machinery are not.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from autotune.compilers.artifact import Artifact, KernelReport
from autotune.compilers.sealed import sealed_folders
from autotune.compilers.upkeep import make_room
from autotune.core.confinement import COMPILERS_HEAR
from autotune.core.errors import CompileError, CompileTimeout
from autotune.core.settings import cache_folder, cache_limit
from autotune.families.source import SOURCE_NAME, KernelSource


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
        heard = [f"{name}={os.environ[name]}" for name in COMPILERS_HEAR if os.environ.get(name)]
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
        self.root = (cache_folder() if root is None else root).absolute()
        self._folders = sealed_folders(self.root)

    def build(self, recipe: Recipe, compile_step: Compile) -> Artifact:
        """The entry of the recipe, built by `compile_step` if it is not there or is damaged.

        It stays until this process ends, or `give_back`.

        Raises:
            CompileError: the compiler refuses the source, now or when it was first built.
            BuildError: the machinery failed.
        """
        key = recipe.key
        record, made = self._folders.get(recipe.kind, key, lambda folder: _fill(recipe, compile_step, folder))
        if made:
            make_room(self.root, self._folders.folder(recipe.kind, key), cache_limit())
        return self._artifact(recipe.kind, key, record, cached=not made)

    def find(self, kind: str, key: str) -> Artifact | None:
        """The entry if it is there and undamaged.

        Raises:
            CompileError: the entry says that the source does not compile.
        """
        record = self._folders.find(kind, key)
        return None if record is None else self._artifact(kind, key, record, cached=True)

    def give_back(self, artifact: Artifact) -> None:
        """Say that a build is in use no longer: it may be removed where the cache is over its limit."""
        self._folders.give_back(artifact.kind, artifact.key)

    def _artifact(self, kind: str, key: str, record: Mapping[str, Any], *, cached: bool) -> Artifact:
        if record["error"]:
            self._folders.give_back(kind, key)
            raise CompileError(record["error"])
        return _read_artifact(self._folders.folder(kind, key), record, cached=cached)


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


def _fill(recipe: Recipe, compile_step: Compile, folder: Path) -> dict[str, Any]:
    write_source(recipe.source, folder)
    start = time.monotonic()
    outcome = _attempt(compile_step, folder)
    built = outcome if isinstance(outcome, Built) else None
    return {
        "candidate": recipe.source.candidate.key,  # the first that asked; others with the same code share the entry
        "compiler": recipe.compiler,
        "arch": recipe.arch,
        "flags": list(recipe.flags),
        "seconds": round(time.monotonic() - start, 4),
        "error": None if built else str(outcome),
        "binary": built and built.binary,
        "kernels": [asdict(kernel) for kernel in built.kernels] if built else [],
        "files": [SOURCE_NAME, *([built.binary] if built else [])],
    }


def _attempt(compile_step: Compile, folder: Path) -> Built | CompileError:
    try:
        return compile_step(folder)
    except CompileTimeout:
        raise
    except CompileError as error:
        return error


def _read_artifact(folder: Path, record: Mapping[str, Any], *, cached: bool) -> Artifact:
    return Artifact(
        kind=record["kind"],
        path=folder / record["binary"],
        source_path=folder / SOURCE_NAME,
        key=record["key"],
        binary_hash=record["files"][record["binary"]],
        kernels=tuple(KernelReport(**kernel) for kernel in record["kernels"]),
        compiler=record["compiler"],
        seconds=record["seconds"],
        cached=cached,
    )
