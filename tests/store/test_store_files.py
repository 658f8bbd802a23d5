"""What can be wrong with the place a database is at: one clear line, and nothing overwritten."""

import contextlib
import io
import multiprocessing
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.engine import URL

from autotune.cli.main import run
from autotune.core import settings
from autotune.core.errors import AutotuneError, StoreError, UsageError
from autotune.store import open_store
from autotune.store.location import database_url, shown
from autotune.store.reader import SqliteReader
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://u@h:port/x", "malformed database URL"),
        ("://nothing", "malformed database URL"),
        ("", "neither a path nor a URL"),
        ("mysql://u@h/x", "names 'mysql'; use sqlite or postgresql"),
        ("nonsense://u@h/x", "nonsense"),
        ("postgresql+nonsense://u@h/x", "unknown driver"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite+aiosqlite:///a.db", "as a path or as sqlite:///path"),
    ],
)
def test_a_malformed_url_is_a_usage_error(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)


def test_a_driver_that_lacks_a_library_of_its_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ImportError("no pq wrapper available")

    monkeypatch.setattr(URL, "get_dialect", lambda _: SimpleNamespace(import_dbapi=fail))
    with pytest.raises(StoreError, match="the driver 'psycopg' of the database URL"):
        database_url("postgresql+psycopg://u@h/x")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"driver 'psycopg'.*pip install 'autotune-kernels\[postgres\]'"):
        open_store("postgresql+psycopg://u:secret@h/x")


def test_a_password_is_never_shown() -> None:
    pytest.importorskip("psycopg")
    url = database_url("postgresql+psycopg://u:secret@h/x")
    assert shown(url) == "postgresql+psycopg://u:***@h/x"


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match=r"the database server cannot be used now: .*No such file") as caught:
        open_store(f"postgresql+psycopg://u@/x?host={tmp_path}")
    assert "\n" not in str(caught.value)


def test_paths_and_urls_name_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", "a.db")
    given = [None, "a.db", Path("a.db"), tmp_path / "a.db", "sqlite:///a.db", f"sqlite:///{tmp_path}/a.db"]
    assert {database_url(one).database for one in given} == {str(tmp_path / "a.db")}


def test_the_default_is_in_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with open_store() as store:
        store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0))
        assert store.location == str(settings.data_folder() / "autotune.db")
    assert Path(settings.database()).is_file()


def test_a_missing_database_is_made_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.db"
    with pytest.raises(StoreError, match="there is no database "):
        open_store(path, create=False)
    assert not path.parent.exists()
    open_store(path).close()
    open_store(path, create=False).close()


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"the database {tmp_path} is a folder; name a file in it"):
        open_store(tmp_path)


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\0" + b"garbage" * 500])
def test_a_corrupt_file_is_left_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        open_store(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_damaged_page_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(path) as store:
        for i in range(50):
            store.record(H200, FORWARD, candidate(i), SOURCE, ok(1.0 + i))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreError) as caught, open_store(path) as store:
        list(store.measurements())
    assert "\n" not in str(caught.value)


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the folder"):
        open_store(tmp_path / "file" / "a.db")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_one_line(open_folder: Path) -> None:
    folder, kept = open_folder, open_folder / "kept.db"
    with open_store(kept) as store:
        store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0))
    before = kept.read_bytes()
    kept.chmod(0o444)
    folder.chmod(0o555)
    fresh = _without_privileges(_try_to_record, str(folder / "new.db"))
    standing = _without_privileges(_try_to_record, str(kept))
    assert fresh == (
        "StoreError",
        f"the database cannot be opened; check that its folder exists and can be written (database {folder}/new.db)",
    )
    assert standing[0] == "StoreError"
    assert "read-only" in standing[1] or "cannot be opened" in standing[1]
    assert kept.read_bytes() == before
    assert not (folder / "new.db").exists()


def test_a_read_only_database_can_be_looked_into(open_folder: Path) -> None:
    kept = open_folder / "kept.db"
    with open_store(kept) as store:
        store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0))
    kept.chmod(0o444)
    open_folder.chmod(0o555)
    assert _without_privileges(_read, str(kept)) == [("h200",)]


@pytest.mark.parametrize("writable", ["folder", "file", "neither"])
def test_a_database_that_cannot_be_written_is_listed_and_shown(open_folder: Path, writable: str) -> None:
    kept = open_folder / "kept.db"
    with open_store(kept) as store:
        store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0))
    for arguments in (["list", "winners"], ["show", "1"]):  # loads what the process below cannot reach
        assert _run([*arguments, "--db", str(kept)])[0] == 0
    kept.chmod(0o666 if writable == "file" else 0o444)
    open_folder.chmod(0o777 if writable == "folder" else 0o555)
    listed = _without_privileges(_run, ["list", "winners", "--json", "--db", str(kept)])
    assert listed[0] == 0
    assert '"device": "h200"' in listed[1]
    shown = _without_privileges(_run, ["show", "1", "--db", str(kept)])
    assert shown[0] == 0
    assert "record" in shown[1]
    assert FORWARD.key in shown[1] or str(FORWARD) in shown[1]


def _run(arguments: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(arguments)
    return code, said.getvalue()


def _read(path: str) -> object:
    return list(SqliteReader(Path(path)).rows("SELECT name FROM device", {}))


def _try_to_record(path: str) -> tuple[str, str]:
    try:
        with open_store(path) as store:
            store.record(H200, FORWARD, candidate(1), SOURCE, ok(1.0))
    except AutotuneError as error:
        return type(error).__name__, str(error)
    return "written", ""


def _without_privileges(function: Any, path: Any) -> Any:
    """The result in a process that permissions hold for (they do not for root)."""
    context = multiprocessing.get_context("fork")  # all modules are loaded: their folders may be out of its reach
    with context.Pool(1, initializer=_drop) as pool:
        return pool.apply(function, (path,))


def _drop() -> None:
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
