"""A second process runs what the first one built, where there is no compiler any more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.compilers.cache import BuildCache
from autotune.compilers.recalled import built_cubin
from autotune.core.errors import BuildError

ASK = """
import autotune
from autotune.compilers.cache import BuildCache
from autotune.compilers.recalled import built_cubin
found = autotune.best("permute", device="h200", db="/nonexistent/none.db")
print(built_cubin(found.source, "sm_90a", BuildCache()).path)
"""


def test_a_process_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    source = autotune.best("permute", device="h200", db="/nonexistent/none.db").source
    built = built_cubin(source, "sm_90a", BuildCache())
    (tmp_path / "bin").mkdir()
    # A process without the wheels of the compiler, a toolkit, or anything on its PATH.
    environment = {**os.environ, "PATH": str(tmp_path / "bin"), "AUTOTUNE_NVCC": str(tmp_path / "bin" / "nvcc")}

    def ask() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", ASK]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = ask()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(built.path)
    built.path.write_bytes(b"damaged")
    done = ask()
    assert done.returncode != 0
    assert "is no working nvcc" in done.stderr


def test_notes_that_are_wrong_are_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = autotune.best("permute", device="h200", db="/nonexistent/none.db").source
    cache = BuildCache(tmp_path / "cache")
    built = built_cubin(source, "sm_90a", cache)
    (note,) = (tmp_path / "cache" / "last-cubin").iterdir()
    assert note.read_text() == built.key
    for wrong in ("", "../../etc", "0" * 32):
        note.write_text(wrong)
        assert built_cubin(source, "sm_90a", cache).key == built.key
        assert note.read_text() == built.key
    monkeypatch.setenv("AUTOTUNE_NVCC", str(tmp_path / "none"))
    assert built_cubin(source, "sm_90a", cache).key == built.key
    note.unlink()
    with pytest.raises(BuildError, match="is no working nvcc"):
        built_cubin(source, "sm_90a", cache)
