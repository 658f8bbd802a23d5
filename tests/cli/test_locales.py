"""Every command under locales that cannot encode what it prints: characters degrade, nothing ends in an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.main import COMMANDS
from autotune.cli.streams import degrade_output

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN_1 = {**ASCII, "PYTHONIOENCODING": "latin-1"}
SMALL = ["--B", "1", "--NH", "1", "--T", "64", "--HS", "32"]


def run(arguments: list[str], locale: dict[str, str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with a database of its own."""
    environment = {**os.environ, **locale, "AUTOTUNE_DB": str(folder / "a.db")}
    command = [sys.executable, "-m", "autotune", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=280)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_in_ascii(command: str, tmp_path: Path) -> None:
    done = run([*filter(None, [command]), "--help"], ASCII, tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.isascii()
    assert b"Usage" in done.stdout
    assert b"?" not in done.stdout.replace(b"?\n", b"")


def test_a_search_a_check_and_an_export_in_ascii(tmp_path: Path) -> None:
    exported = tmp_path / "forward.cu"
    for arguments in (
        ["search", "--op", "forward", *SMALL, "--device", "cpu", "--trials", "1", "--template", "flash_simt"],
        ["check", "--op", "forward", *SMALL, "--template", "flash_simt", "--no-hints"],
        ["list", "winners"],
        ["best", "--op", "forward", *SMALL],
        ["export", "--op", "forward", *SMALL, "-o", str(exported)],
    ):
        done = run(arguments, ASCII, tmp_path)
        assert done.returncode == 0, (arguments, done.stderr.decode())
        assert "�" not in (done.stdout + done.stderr).decode(errors="replace")  # typer takes ASCII for UTF-8
    assert not exported.read_text(encoding="utf-8").isascii()  # a file is UTF-8 whatever the terminal is


@pytest.mark.parametrize("arguments", [["list", "gpus"], ["search", "--help"], ["best", *SMALL]])
def test_latin_1_has_no_ellipsis(arguments: list[str], tmp_path: Path) -> None:
    done = run(arguments, LATIN_1, tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert "…" not in done.stdout.decode("latin-1")


def test_characters_by_others() -> None:
    degrade_output()
    assert "a ≤ b … µ ü ☃".encode("ascii", "autotune.plain") == b"a <= b ... u u ?"
    assert "µ ü …".encode("latin-1", "autotune.plain") == "µ ü ...".encode("latin-1")
