"""Homes, folders and names that are none: one true line each."""

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.core.errors import AutotuneError, UsageError
from autotune.core.settings import cache_folder, database, emulator_level
from autotune.devices.client import WorkerClient
from autotune.devices.factory import CpuOpener
from autotune.emulator.support import emulator_flags
from autotune.gpus.known import gpu


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTOTUNE_CACHE", "AUTOTUNE_DB", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def no_account(_: int) -> None:
    raise KeyError("uid not found")


@pytest.mark.parametrize("home", [None, "", "relative", "~"])
def test_a_user_without_account_or_home(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", no_account)
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(UsageError, match=r"^user \d+ has no home folder: .* or AUTOTUNE_CACHE to a folder$"):
        cache_folder()
    with pytest.raises(UsageError, match=r"set HOME to a folder, or AUTOTUNE_DB to a file$"):
        database()
    monkeypatch.setenv("AUTOTUNE_CACHE", "/somewhere")
    monkeypatch.setenv("AUTOTUNE_DB", "/somewhere/a.db")
    assert (cache_folder(), database()) == (Path("/somewhere"), "/somewhere/a.db")


def test_one_without_account_but_with_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", no_account)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/home/somebody/.cache/autotune")


@pytest.mark.parametrize("home", ["", "relative"])
def test_one_with_an_account_and_a_home_that_is_none(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account says where it is."""
    monkeypatch.setenv("HOME", home)
    assert cache_folder() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache/autotune"


def test_a_relative_cache_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers run elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_CACHE", "builds")
    assert cache_folder() == tmp_path / "builds"


def test_a_home_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", "~nobody-has-this-name/cache")
    with pytest.raises(UsageError, match="AUTOTUNE_CACHE='~nobody-has-this-name/cache': "):
        cache_folder()


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.setattr(tempfile, "TemporaryFile", none)
    with pytest.raises(AutotuneError, match=r"^no temporary file can be made: .*; set TMPDIR to a folder of yours$"):
        WorkerClient(CpuOpener(gpu("h200")))


NOT_UTF_8 = os.fsdecode(b"\xff\xfe")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["best", "--template", f"{NOT_UTF_8}.cu.j2"], "has characters that cannot be printed; rename the file"),
        (["list", "trials", "--db", f"{NOT_UTF_8}.db"], "there is no database"),
        (["db", "import", f"{NOT_UTF_8}.jsonl"], r"cannot read \udcff\udcfe.jsonl: No such file"),
        (["best", "--set", f"{NOT_UTF_8}=1"], r"\udcff\udcfe"),
        (["best", "--device", NOT_UTF_8], r"\udcff\udcfe"),
        (["export", "--device", "h200", "-o", f"{NOT_UTF_8}.cu"], "has characters that cannot be printed"),
    ],
)
def test_names_that_are_not_utf_8(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    assert run(arguments) in {1, 2}
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert "bug" not in err


def test_how_far_emulated_builds_are_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is part of their flags, and so of their keys."""
    for given, level in ((None, "2"), ("", "2"), ("1", "1"), (" 3 ", "3")):
        monkeypatch.delenv("AUTOTUNE_EMULATOR_LEVEL", raising=False)
        if given is not None:
            monkeypatch.setenv("AUTOTUNE_EMULATOR_LEVEL", given)
        for traced in (False, True):
            assert [flag for flag in emulator_flags(traced) if flag.startswith("-O")] == [f"-O{level}"]
    monkeypatch.setenv("AUTOTUNE_EMULATOR_LEVEL", "g")
    assert "-Og" in emulator_flags()
    assert "-O1" in emulator_flags(traced=True)  # what is counted is what g++ leaves
    monkeypatch.setenv("AUTOTUNE_EMULATOR_LEVEL", "fast")
    with pytest.raises(UsageError, match=r"^AUTOTUNE_EMULATOR_LEVEL='fast' is no level .* write 0, 1, 2, 3 or g$"):
        emulator_level()
