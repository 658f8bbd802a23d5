"""Passwords of database URLs are never shown, and a URL with a typing error is no file's name."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.core.database_files import plain_path
from autotune.core.errors import AutotuneError, UsageError
from autotune.core.passwords import hidden
from autotune.store import open_store

SECRET = "hunter2"

WRITTEN = (
    f"postgresql+psycopg://admin:{SECRET}@localhost:1/autotune",
    f"postgresql+psycopg://admin:{SECRET}@x/y@localhost:1/autotune?connect_timeout=1",
    f"postgresql+psycopg://localhost:1/autotune?user=admin&password={SECRET}",
    f"postgresql+psycopg://localhost:1/autotune?sslpassword={SECRET}&sslmode=disable",
    f"postgresql+psycopg//admin:{SECRET}@localhost/autotune",
    f"postgresql+psycopg:/admin:{SECRET}@localhost/autotune",
    f"postgres:admin:{SECRET}@localhost",
    f"postgresql+nodriver://admin:{SECRET}@localhost/autotune",
    f"mysql://admin:{SECRET}@localhost/autotune",
    f"http://admin:{SECRET}@[localhost/autotune",
    f"sqlite://admin:{SECRET}@localhost/autotune.db",
)


@pytest.mark.parametrize("url", WRITTEN)
def test_errors_hide_it(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AutotuneError) as raised:
        open_store(url).close()
    assert SECRET not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", WRITTEN)
def test_tracebacks_hide_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DEBUG", "1")
    assert run(["list", "trials", "--db", url]) != 0
    out, err = capsys.readouterr()
    assert "Traceback" in err
    assert SECRET not in out + err


@pytest.mark.parametrize("url", [WRITTEN[0], WRITTEN[4]])
@pytest.mark.parametrize("command", [["list", "winners"], ["best"], ["db", "upgrade"]])
def test_commands_hide_it(command: list[str], url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *command, "--db", url],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert SECRET not in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--db 'postgresql://a:b@h/d' -o x.cu", "--db 'postgresql://a:***@h/d' -o x.cu"),
        ("sqlite:///results.db", "sqlite:///results.db"),
        ("postgresql://user@host/name", "postgresql://user@host/name"),
        ("host=h password=b dbname=d", "host=h password=*** dbname=d"),
        ("x/y: a@b", "x/y: a@b"),
    ],
)  # fmt: skip
def test_only_passwords_are_hidden(text: str, shown: str) -> None:
    assert hidden(text) == shown


@pytest.mark.parametrize(
    "name", ["results.db", "sqlite/results.db", "./postgresql:x", "a@b.db", "postgres.db", "data/a@b:c"]
)
def test_names_of_files_stay_names(name: str) -> None:
    assert plain_path(name) == Path(name).absolute()


def test_a_url_without_its_colon_is_refused() -> None:
    with pytest.raises(UsageError, match=r"looks like a URL but has no ://"):
        plain_path("postgresql+psycopg//host/db")
