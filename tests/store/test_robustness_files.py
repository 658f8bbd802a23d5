"""Files that commands write: replaced whole, links followed, devices and databases spared."""

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.core.files import replacing
from autotune.store import open_store

COMMANDS = (["export", "--op", "forward"], ["db", "export"])


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty database, so that `db export` has one to read."""
    path = tmp_path / "own.db"
    monkeypatch.setenv("AUTOTUNE_DB", str(path))
    open_store(path).close()
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_stays_a_device(command: list[str], tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_text()))
    reader.start()
    assert run([*command, "-o", str(fifo)]) == 0
    reader.join(timeout=30)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert ("attention_forward" in received[0]) == (command[0] == "export")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_is_followed(command: list[str], tmp_path: Path) -> None:
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    assert run([*command, "-o", str(link)]) == 0
    assert link.is_symlink()
    assert target.read_text() != "old"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_is_spared(command: list[str], database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "-o", str(database)]) != 0
    assert "it is a database, which was left untouched" in capsys.readouterr().err
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines(["new", 5])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert not list(tmp_path.glob(".autotune.*"))
