"""Finding a cubin again without a compiler: which entry of the build cache was last built from a source.

An entry's key has the compiler in it, so that to look one up a compiler must be found and asked for its version. Who
only wants to run what was built before does not need one: the last key for each source is noted beside the entries.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import FLAGS, build_cubin
from autotune.core.errors import CompileError
from autotune.families.source import KernelSource

_NOTES = "last-cubin"


def built_cubin(source: KernelSource, arch: str, cache: BuildCache) -> Artifact:
    """The cubin that was last built here from the source for `arch`, by whatever compiler; else it is built now.

    Raises:
        CompileError: the compiler refuses the source.
        BuildError: it was never built here, and there is no compiler, or it could not run.
    """
    note = cache.root / _NOTES / _name(source, arch)
    found = _recalled(note, cache)
    if found is None:
        found = build_cubin(source, arch, cache)
        _write(note, found.key)
    return found


def _recalled(note: Path, cache: BuildCache) -> Artifact | None:
    try:
        key = note.read_text(encoding="ascii").strip()
        return cache.find("cubin", key) if key.isalnum() else None
    except (OSError, ValueError, CompileError):  # no note, or one of an entry that is no longer what it was
        return None


def _name(source: KernelSource, arch: str) -> str:
    parts = [arch, *FLAGS, source.body, *(text for include in source.includes for text in (include.name, include.text))]
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()[:32]


def _write(note: Path, key: str) -> None:
    """Whole or not at all. A cache that cannot be written to only means that the next process asks the compiler."""
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=note.parent)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key)
        Path(name).replace(note)
