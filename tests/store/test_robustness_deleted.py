"""Files that disappear while they are in use: the build cache, the database."""

import shutil
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.compilers.cache import BuildCache, Built, Recipe
from autotune.core.errors import BuildError, CompileError, StoreError
from autotune.store import open_store
from tests.sources import kernel_source
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok

RECIPE = Recipe("cubin", kernel_source("body"), "nvcc 13.0.88", "sm_90a", ("-O3",))


def test_a_cache_that_is_emptied_during_a_build_costs_another_try(tmp_path: Path) -> None:
    root, calls = tmp_path / "cache", 0

    def compile_step(folder: Path) -> Built:
        nonlocal calls
        calls += 1
        if calls == 1:
            shutil.rmtree(root)
            raise CompileError("kernel.cu: no such file")
        (folder / "k.cubin").write_bytes(b"binary")
        return Built("k.cubin", ())

    assert BuildCache(root).build(RECIPE, compile_step).path.read_bytes() == b"binary"
    assert calls == 2


def test_a_cache_that_is_emptied_again_and_again_is_an_error(tmp_path: Path) -> None:
    root, calls = tmp_path / "cache", 0

    def compile_step(_: Path) -> Built:
        nonlocal calls
        calls += 1
        shutil.rmtree(root)
        raise CompileError("kernel.cu: no such file")

    with pytest.raises(BuildError, match="cannot write the build cache"):
        BuildCache(root).build(RECIPE, compile_step)
    assert calls == 3


@pytest.mark.parametrize("again", [True, False])
def test_a_database_that_was_deleted_takes_no_more_records(tmp_path: Path, again: bool) -> None:
    path = tmp_path / "a.db"
    with open_store(path) as store:
        store.record(H200, FORWARD, candidate(16), SOURCE, ok(2.0))
        for file in tmp_path.iterdir():
            file.unlink()
        if again:
            open_store(path).close()
        with pytest.raises(StoreError, match="was deleted or replaced while in use"):
            store.record(H200, FORWARD, candidate(32), SOURCE, ok(1.0))
        with pytest.raises(StoreError, match="was deleted or replaced while in use"):
            store.trials()


@pytest.mark.parametrize("command", ["list", "best"])
def test_a_home_of_nobody(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--db", "~nobody-of-this-name/a.db"]) == 2
    assert "error: the database '~nobody-of-this-name/a.db': " in capsys.readouterr().err
