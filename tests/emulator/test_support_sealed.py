"""What all emulated builds share is sealed: truncated or damaged it is made again, and no candidate is to blame."""

import shutil
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.plan import Launch, LaunchPlan
from autotune.core.settings import cache_folder
from autotune.emulator.building import build_emulator
from autotune.emulator.support import KIND, PRELUDE, Support, emulator_support
from tests.sources import kernel_source

SOURCE = kernel_source(
    'extern "C" __global__ void k(int* x) { *x = 1; }', plan=LaunchPlan((), (Launch("k", (1, 1, 1), (1, 1, 1), 0, ()),))
)
FILES = (PRELUDE, f"{PRELUDE}.gch", "runtime.o")


@pytest.fixture
def support(tmp_path: Path) -> Support:
    """A copy of the session's in a cache of its own."""
    usual = emulator_support(cache_folder())
    shutil.copytree(usual.folder, tmp_path / KIND / usual.key[:2] / usual.key)
    return emulator_support(tmp_path)


def damage(path: Path, how: str) -> None:
    if how == "truncated":
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    elif how == "changed":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif how == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "changed") for name in (*FILES, "artifact.json")),
        (FILES[1], "truncated"),
        (FILES[2], "emptied"),
        (FILES[2], "lost"),
    ],
)
def test_damage_is_noticed(name: str, how: str, support: Support) -> None:
    assert support.folders.find(KIND, support.key) is not None
    damage(support.folder / name, how)
    assert support.folders.find(KIND, support.key) is None
    assert not support.is_sound()


def test_damage_while_a_candidate_is_compiled_is_not_its_compile_error(
    support: Support, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the compiler, which says so: all is made again, two seconds once."""
    command, damaged = Support.command, False
    sizes = {name: (support.folder / name).stat().st_size for name in FILES}

    def damage_all(self: Support, source: str, binary: str) -> list[str]:
        nonlocal damaged
        if not damaged:
            damaged = True
            for name in FILES:
                damage(self.folder / name, "truncated")
        return command(self, source, binary)

    monkeypatch.setattr(Support, "command", damage_all)
    artifact = build_emulator(SOURCE, BuildCache(tmp_path))
    assert artifact.path.stat().st_size > 0
    assert support.is_sound()
    assert all(
        (support.folder / name).stat().st_size > 0.9 * sizes[name] for name in FILES
    )  # it holds names of folders
    assert not list((tmp_path / "tmp").iterdir())
    assert not list((tmp_path / "locks").iterdir())


def test_a_user_without_permission_is_told(support: Support, tmp_path: Path) -> None:
    damage(support.folder / "runtime.o", "lost")
    assert support.folders.find(KIND, support.key) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match=r"cannot write the build cache .*set AUTOTUNE_CACHE"):
        emulator_support(tmp_path / "file" / "cache")
