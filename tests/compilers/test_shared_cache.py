"""One cache of several users: it works, and who runs what others may have written is told so."""

import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.compilers import sealed
from autotune.compilers.cache import BuildCache, Built, Recipe
from autotune.compilers.sealed import sealed_folders
from autotune.core.errors import BuildError, SharedCacheWarning
from autotune.core.owners import others_in
from tests.sources import kernel_source

RECIPE = Recipe("cubin", kernel_source("body"), "nvcc 13.0.88", "sm_90a", ("-O3",))
NOBODY, SOMEBODY = 65534, 65533


def compile_step(folder: Path) -> Built:
    (folder / "kernel.cubin").write_bytes(b"binary")
    return Built("kernel.cubin", ())


def said(root: Path) -> str:
    """What is said of others where the entry is found by a process that has not seen the cache before."""
    sealed._KNOWN.pop(root, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            BuildCache(root).build(RECIPE, compile_step)
    assert len(caught) <= 1
    assert all(one.category is SharedCacheWarning for one in caught)
    return str(caught[0].message) if caught else ""


def test_a_cache_of_ones_own_says_nothing(tmp_path: Path) -> None:
    assert said(tmp_path / "cache") == ""
    assert said(tmp_path / "cache") == ""
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) & 0o022 == 0


@pytest.mark.parametrize("place", ["", "cubin", "entry", "file"])
def test_what_everybody_may_write_is_said_once(place: str, tmp_path: Path) -> None:
    entry = BuildCache(tmp_path).build(RECIPE, compile_step).path.parent
    changed = {"entry": entry, "file": entry / "kernel.cubin"}.get(place, tmp_path / place)
    changed.chmod(0o777)
    assert said(tmp_path) == (
        f"{changed} in the build cache can be written by everybody: builds are code that runs with your rights; "
        "AUTOTUNE_CACHE names a folder of your own"
    )


def test_what_another_user_owns_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BuildCache(tmp_path).build(RECIPE, compile_step)
    if os.geteuid() == 0:
        os.chown(tmp_path, NOBODY, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    assert "can be written by its owner " in said(tmp_path)


def test_a_group_of_others_is_said_and_a_users_own_group_is_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    if tmp_path.stat().st_gid == 0:
        assert others_in(tmp_path) == ""
        os.chown(tmp_path, -1, NOBODY)
    assert others_in(tmp_path).startswith("the group ")


def test_commands_say_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    tmp_path.chmod(0o777)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    assert run(["cache", "show"]) == 0
    assert "writable by  everybody: builds are code that runs with your rights" in capsys.readouterr().out
    warnings.warn("it is shared\x1b[2J", SharedCacheWarning, stacklevel=1)
    assert capsys.readouterr().err == "note: it is shared\\x1b[2J\n"


def as_user(uid: int, do: Callable[[], None]) -> int:
    """The exit status of a child process with another user's rights; 0 where all went well."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            sealed._KNOWN.clear()
            do()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A cache that everybody may write, and nobody but its owner may take away from: as `/tmp` is."""
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o1777)
    for folder in tmp_path.parents:  # others must get here
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(tmp_path.stat().st_mode | 0o011)
    return root


def test_users_build_and_use_each_others_entries(shared: Path) -> None:
    calls: list[int] = []

    def counted(folder: Path) -> Built:
        calls.append(os.geteuid())
        return compile_step(folder)

    def build(flag: str, builds: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SharedCacheWarning)
            recipe = Recipe("cubin", kernel_source("body"), "nvcc 13.0.88", "sm_90a", (flag,))
            assert BuildCache(shared).build(recipe, counted).path.read_bytes() == b"binary"
        assert len(calls) == builds

    os.umask(old := os.umask(0o077))
    for uid, flag, builds in ((NOBODY, "-a", 1), (SOMEBODY, "-a", 0), (SOMEBODY, "-b", 1), (NOBODY, "-b", 0)):
        assert as_user(uid, lambda flag=flag, builds=builds: build(flag, builds)) == 0  # type: ignore[misc]
    assert old == os.umask(old)


def test_what_another_user_alone_can_mend_is_said(shared: Path) -> None:
    """A damaged entry, in a folder where each removes only what is theirs."""
    if os.geteuid() != 0:
        pytest.skip("needs to be root, to be two other users")
    key = RECIPE.key

    def build() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SharedCacheWarning)
            BuildCache(shared).build(RECIPE, compile_step)

    def refused() -> None:
        with pytest.raises(BuildError, match=r"is damaged or cannot be read, and it is nobody's, who alone can remove"):
            build()

    assert as_user(NOBODY, build) == 0
    (sealed_folders(shared).folder("cubin", key) / "kernel.cubin").write_bytes(b"other")
    assert as_user(SOMEBODY, refused) == 0
    assert as_user(NOBODY, build) == 0
