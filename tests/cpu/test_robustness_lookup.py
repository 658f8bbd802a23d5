"""Look-ups never answer from memory what a database no longer says: after a fork, a new file, a copy over it."""

import os
import shutil
from pathlib import Path

import pytest

import autotune
from autotune.devices.gpus import gpu
from autotune.ops.registry import get_op
from autotune.space import Space
from autotune.store import open_store
from autotune.store.reader import SqliteReader
from autotune.template import find_template
from tests.cpu.store_records import H200, SOURCE, ok

FORWARD = get_op("forward").problem()


def record(path: Path, position: int, ms: float) -> None:
    space = Space(find_template("forward", "flash_simt"), FORWARD, gpu("h200"))
    with open_store(path) as store:
        store.record(H200, FORWARD, space.candidate(space[position]), SOURCE, ok(ms))


def asked(path: Path) -> float | None:
    return autotune.best("forward", device="h200", db=path).ms


def test_a_forked_process_sees_what_is_written_after_the_fork(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    record(path, 0, 5.0)
    assert asked(path) == 5.0
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0 if asked(path) == 0.25 else 1)
    record(path, 1, 0.25)
    os.write(go, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asked(path) == 0.25


def test_a_database_that_another_is_copied_over_is_read_anew(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    record(path, 0, 0.5)
    record(other, 1, 0.25)  # as many changes as in the first
    assert asked(path) == 0.5
    shutil.copyfile(other, path)
    assert asked(path) == 0.25


@pytest.mark.parametrize("between", [True, False])
def test_a_database_made_again_is_another(tmp_path: Path, between: bool) -> None:
    path = tmp_path / "a.db"
    reader = SqliteReader(path)
    seen = set()
    for _ in range(3):
        open_store(path).close()
        seen.add(reader.stamp())
        for file in tmp_path.iterdir():
            file.unlink()
        if between:
            assert reader.stamp() is None
    assert len(seen) == 3
