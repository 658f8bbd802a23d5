import json
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compilers.artifact import KernelReport
from autotune.compilers.cache import BuildCache, Built, Recipe
from autotune.core.errors import BuildError, CompileError, CompileTimeout
from autotune.families.source import Include
from tests.sources import kernel_source

REPORT = KernelReport("k", registers=8, spill_bytes=0, static_smem=0)
RECIPE = Recipe("cubin", kernel_source("body"), "nvcc 13.0.88", "sm_90a", ("-O3", "-I", "."))


class Compiler:
    """A compile step that counts its calls and writes what it is told."""

    def __init__(self, content: bytes = b"binary", error: Exception | None = None) -> None:
        self.calls = 0
        self.content = content
        self.error = error

    def __call__(self, folder: Path) -> Built:
        self.calls += 1
        assert (folder / "kernel.cu").read_text() == "// header\nbody"
        if self.error is not None:
            raise self.error
        (folder / "kernel.cubin").write_bytes(self.content)
        return Built("kernel.cubin", (REPORT,))


def test_an_entry_is_built_once_and_found_again(tmp_path: Path) -> None:
    compiler = Compiler()
    first = BuildCache(tmp_path).build(RECIPE, compiler)
    again = BuildCache(tmp_path).build(RECIPE, compiler)
    assert compiler.calls == 1
    assert (first.cached, again.cached) == (False, True)
    assert replace(first, cached=True) == again
    assert again.path.read_bytes() == b"binary"
    assert again.kernels == (REPORT,)
    assert again.key == RECIPE.key
    assert again.compiler == "nvcc 13.0.88"
    assert again.source_path.read_text() == "// header\nbody"
    assert again.source_path.parent == again.path.parent


def test_headers_lie_beside_the_source(tmp_path: Path) -> None:
    source = kernel_source("body", includes=(Include("common/view.cuh", "struct View;"),))
    artifact = BuildCache(tmp_path).build(replace(RECIPE, source=source), Compiler())
    assert (artifact.path.parent / "common" / "view.cuh").read_text() == "struct View;"


def test_nothing_but_the_entry_is_left(tmp_path: Path) -> None:
    BuildCache(tmp_path).build(RECIPE, Compiler())
    with pytest.raises(CompileTimeout):
        BuildCache(tmp_path).build(replace(RECIPE, arch="sm_80"), Compiler(error=CompileTimeout("slow")))
    files = {path.name for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "users"}
    assert files == {"artifact.json", "kernel.cu", "kernel.cubin"}


def test_the_key_is_of_all_that_decides_the_binary() -> None:
    source = kernel_source("body", includes=(Include("common/a.cuh", "1"),))
    recipe = replace(RECIPE, source=source)
    others = [
        RECIPE,
        replace(recipe, source=replace(source, body="body2")),
        replace(recipe, source=replace(source, includes=(Include("common/a.cuh", "2"),))),
        replace(recipe, source=replace(source, includes=(Include("common/b.cuh", "1"),))),
        replace(recipe, compiler="nvcc 13.5.37"),
        replace(recipe, arch="sm_90"),
        replace(recipe, flags=("-O3", "-I.")),
        replace(recipe, flags=("-O3", "-I", ".", "-g")),
        replace(recipe, extra=("cafe",)),
        replace(recipe, kind="emulator"),
    ]
    assert len({recipe.key, *(other.key for other in others)}) == len(others) + 1


def test_the_header_comment_is_not_part_of_the_key() -> None:
    commented = replace(RECIPE, source=kernel_source("body", header="// T=512\n"))
    assert commented.key == RECIPE.key


def test_a_compile_error_is_an_entry(tmp_path: Path) -> None:
    compiler = Compiler(error=CompileError("line 1\nline 2"))
    for _ in range(2):
        with pytest.raises(CompileError, match="line 1\nline 2"):
            BuildCache(tmp_path).build(RECIPE, compiler)
    assert compiler.calls == 1


@pytest.mark.parametrize("error", [CompileTimeout("too slow"), BuildError("no compiler"), RuntimeError("a bug")])
def test_other_failures_are_not(tmp_path: Path, error: Exception) -> None:
    compiler = Compiler(error=error)
    for _ in range(2):
        with pytest.raises(type(error), match=str(error)):
            BuildCache(tmp_path).build(RECIPE, compiler)
    assert compiler.calls == 2
    assert BuildCache(tmp_path).build(RECIPE, Compiler()).cached is False


def test_a_damaged_binary_is_built_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    path = cache.build(RECIPE, Compiler()).path
    path.write_bytes(b"binarY")
    compiler = Compiler()
    assert cache.build(RECIPE, compiler).cached is False
    assert compiler.calls == 1
    assert path.read_bytes() == b"binary"
    assert cache.build(RECIPE, compiler).cached is True


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"key": 1}'])
def test_a_damaged_record_is_built_again(tmp_path: Path, damage: str) -> None:
    cache = BuildCache(tmp_path)
    record = cache.build(RECIPE, Compiler()).path.parent / "artifact.json"
    record.write_text(damage)
    compiler = Compiler()
    assert cache.build(RECIPE, compiler).kernels == (REPORT,)
    assert compiler.calls == 1


def test_a_record_with_one_changed_figure_is_built_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    record = cache.build(RECIPE, Compiler()).path.parent / "artifact.json"
    data = json.loads(record.read_text())
    data["kernels"][0]["registers"] = 9
    record.write_text(json.dumps(data))
    assert cache.build(RECIPE, Compiler()).kernels == (REPORT,)


@pytest.mark.parametrize("lost", ["kernel.cubin", "kernel.cu", "artifact.json"])
def test_an_entry_that_lacks_a_file_is_built_again(tmp_path: Path, lost: str) -> None:
    cache = BuildCache(tmp_path)
    folder = cache.build(RECIPE, Compiler()).path.parent
    (folder / lost).unlink()
    assert cache.find("cubin", RECIPE.key) is None
    cache.build(RECIPE, Compiler())
    assert (folder / lost).is_file()


def test_threads_that_want_the_same_entry_wait_for_one_build(tmp_path: Path) -> None:
    started = threading.Event()

    class Slow(Compiler):
        def __call__(self, folder: Path) -> Built:
            started.set()
            time.sleep(0.1)
            return super().__call__(folder)

    compiler = Slow()
    with ThreadPoolExecutor(8) as executor:
        artifacts = list(executor.map(lambda _: BuildCache(tmp_path).build(RECIPE, compiler), range(8)))
    assert started.is_set()
    assert compiler.calls == 1
    assert sorted(artifact.cached for artifact in artifacts) == [False] + [True] * 7


def build_slowly(root: Path, calls: Path) -> None:
    def compile_step(folder: Path) -> Built:
        with calls.open("a") as file:
            file.write("x")
        (folder / "kernel.cubin").write_bytes(b"half")
        time.sleep(0.2)
        (folder / "kernel.cubin").write_bytes(b"binary")
        return Built("kernel.cubin", (REPORT,))

    BuildCache(root).build(RECIPE, compile_step)


def test_processes_that_want_the_same_entry_wait_for_one_build(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    calls = tmp_path / "calls"
    workers = [context.Process(target=build_slowly, args=(tmp_path, calls)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert calls.read_text() == "x"
    assert BuildCache(tmp_path).build(RECIPE, Compiler()).path.read_bytes() == b"binary"


def test_a_process_killed_in_the_middle_leaves_no_entry_and_no_lock(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    worker = multiprocessing.get_context("fork").Process(target=build_slowly, args=(tmp_path, calls))
    worker.start()
    while not calls.exists():
        time.sleep(0.005)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert BuildCache(tmp_path).find("cubin", RECIPE.key) is None
    assert BuildCache(tmp_path).build(RECIPE, Compiler(b"whole")).path.read_bytes() == b"whole"


def test_what_a_killed_process_left_is_swept_after_a_day(tmp_path: Path) -> None:
    old, fresh = tmp_path / "tmp" / "old", tmp_path / "tmp" / "fresh"
    for folder in (old, fresh):
        (folder / "entry").mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    BuildCache(tmp_path).build(RECIPE, Compiler())
    assert not old.exists()
    assert fresh.exists()


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match=r"cannot write the build cache .*set AUTOTUNE_CACHE"):
        BuildCache(tmp_path / "file" / "cache").build(RECIPE, Compiler())


def test_the_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "here"))
    assert BuildCache().root == tmp_path / "here"
    monkeypatch.delenv("AUTOTUNE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert BuildCache().root == tmp_path / "autotune"
