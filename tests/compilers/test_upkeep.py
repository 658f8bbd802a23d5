"""The build cache keeps within its limit: what was used least recently goes first, what somebody uses never."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.compilers import upkeep
from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache, Built, Recipe
from autotune.compilers.sealed import SealedFolders
from autotune.compilers.upkeep import clean, entries, in_use, litter
from autotune.core.errors import UsageError
from autotune.core.settings import cache_limit, read_size
from tests.sources import kernel_source

RECIPE = Recipe("cubin", kernel_source("body"), "nvcc 13.0.88", "sm_90a", ("-O3",))
KIB = 1024


def build(root: Path, number: int, *, hold: bool = False) -> Artifact:
    """An entry of some 100 KiB."""

    def compile_step(folder: Path) -> Built:
        (folder / "kernel.cubin").write_bytes(os.urandom(100 * KIB))
        return Built("kernel.cubin", ())

    cache = BuildCache(root)
    artifact = cache.build(replace(RECIPE, flags=(f"-D{number}",)), compile_step)
    if not hold:
        cache.give_back(artifact)
    return artifact


def used_at(artifact: Artifact, moment: float) -> None:
    os.utime(artifact.path.parent / "artifact.json", (moment, moment))


@pytest.fixture(autouse=True)
def count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_COUNTED", {})


def test_what_was_used_least_recently_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [build(tmp_path, number) for number in range(4)]
    for artifact, moment in zip(made, (400.0, 100.0, 300.0, 200.0), strict=True):
        used_at(artifact, moment)
    BuildCache(tmp_path).find("cubin", made[1].key)  # used now
    BuildCache(tmp_path).give_back(made[1])
    monkeypatch.setenv("AUTOTUNE_CACHE_LIMIT", "450K")
    made.append(build(tmp_path, 4))
    assert [artifact.path.exists() for artifact in made] == [True, True, False, False, True]
    assert sum(entry.nbytes for entry in entries(tmp_path)) <= 450 * KIB


def test_what_this_process_uses_stays_whatever_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_LIMIT", "0")
    held = build(tmp_path, 0, hold=True)
    others = [build(tmp_path, number) for number in range(1, 4)]
    assert held.path.exists()
    assert [artifact.path.exists() for artifact in others] == [False, False, True]  # the last was in use as it was made
    BuildCache(tmp_path).give_back(held)
    assert clean(tmp_path, 0).removed == 2
    assert not held.path.exists()


def use_and_wait(root: Path, key: str, connection: Connection) -> None:
    connection.send(BuildCache(root).find("cubin", key) is not None)
    connection.recv()


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_what_another_process_uses_stays_until_it_ends(end: str, tmp_path: Path) -> None:
    made = build(tmp_path, 0)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=use_and_wait, args=(tmp_path, made.key, theirs))
    process.start()
    assert ours.recv()
    assert in_use(tmp_path) == {f"cubin/{made.key}"}
    assert [entry.path.name for entry in clean(tmp_path, 0).kept] == [made.key]
    assert made.path.exists()
    if end == "ends":
        ours.send(None)
    else:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert clean(tmp_path, 0).removed == 1
    assert not made.path.exists()


def build_until_killed(root: Path, first: int) -> None:
    for number in range(first, first + 10_000):
        artifact = build(root, number, hold=True)
        assert artifact.path.read_bytes()
        BuildCache(root).give_back(artifact)


def test_processes_with_a_tiny_limit_never_lose_what_they_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads what it was given; one is killed in the middle."""
    monkeypatch.setenv("AUTOTUNE_CACHE_LIMIT", "1K")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=build_until_killed, args=(tmp_path, first)) for first in (0, 0, 5)]
    for worker in workers:
        worker.start()
    time.sleep(0.5)
    assert workers[0].pid is not None
    os.kill(workers[0].pid, signal.SIGKILL)
    time.sleep(0.5)
    assert [worker.is_alive() for worker in workers] == [False, True, True]
    for worker in workers[1:]:
        worker.kill()
        worker.join()
    clean(tmp_path, 0)
    assert list(entries(tmp_path)) == []


def test_litter_is_swept(tmp_path: Path) -> None:
    made = build(tmp_path, 0)
    old = [
        tmp_path / "tmp" / "dead",
        tmp_path / "emulator-support" / ("0" * 32),
        tmp_path / "emulator-support" / "tmpabc",
    ]
    fresh = [tmp_path / "tmp" / "busy", tmp_path / "emulator-support" / ("1" * 32)]
    for folder in (*old, *fresh):
        (folder / "entry").mkdir(parents=True)
    lock, held = tmp_path / "locks" / "dead", tmp_path / "users" / "dead"
    lock.touch()
    held.write_text(f"+cubin/{made.key}\n")
    for path in (*old, lock):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    assert set(litter(tmp_path)) == {*old, lock}
    done = clean(tmp_path, 0)
    assert (done.litter, done.removed) == (4, 1)
    assert not any(path.exists() for path in (*old, lock, held))
    assert all(path.exists() for path in fresh)


def test_a_damaged_entry_of_another_user_is_set_aside_and_swept(tmp_path: Path) -> None:
    """Who may rename it and nothing else gives it a name where nobody looks."""
    made = build(tmp_path, 0)
    aside = made.path.parent.with_name(made.key + ".damaged-0")
    made.path.parent.rename(aside)
    assert list(entries(tmp_path)) == []
    assert list(litter(tmp_path)) == [aside]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1048576", 2**20), ("500M", 500 * 2**20), ("1.5g", 3 * 2**29), ("20 GiB", 20 * 2**30), ("none", None)],
)
def test_sizes(text: str, size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_LIMIT", text)
    assert cache_limit() == size


@pytest.mark.parametrize("text", ["-1", "1 mile", "G", "1e9", "nan", "inf", "9" * 40, "1..5G"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"--limit='.*' is no size; write 500M or 20G, or none"):
        read_size(text, "--limit")


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AUTOTUNE_CACHE_LIMIT", "2M")
    assert run(["cache", "show"]) == 0
    assert "0 B in 0 builds" in capsys.readouterr().out
    held, _ = build(tmp_path / "cache", 0, hold=True), build(tmp_path / "cache", 1)
    assert run(["cache", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["folder"], shown["limit"], shown["entries"]) == (str(tmp_path / "cache"), 2 * 2**20, 2)
    assert shown["bytes"] >= 200 * KIB
    assert shown["kinds"]["cubin"]["in_use"] == shown["in_use"] == 1
    assert run(["cache", "show"]) == 0
    out = capsys.readouterr().out
    assert "2 MiB" in out
    assert [line.split()[:2] for line in out.splitlines()][-1] == ["cubin", "2"]
    assert run(["cache", "clean", "--limit", "1G"]) == 0
    assert "0 builds removed, 0 B freed" in capsys.readouterr().out
    assert run(["cache", "clean", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["removed"], done["in_use"]) == (1, 1)
    assert held.path.exists()
    BuildCache(tmp_path / "cache").give_back(held)
    assert run(["cache", "clean"]) == 0
    assert "1 build removed" in capsys.readouterr().out
    assert run(["cache", "clean", "--limit", "much"]) == 2


def test_a_limit_that_is_none_is_said_by_commands(tmp_path: Path) -> None:
    environment = {**os.environ, "AUTOTUNE_CACHE": str(tmp_path), "AUTOTUNE_CACHE_LIMIT": "1 mile"}
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "cache", "show"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: AUTOTUNE_CACHE_LIMIT='1 mile' is no size; write 500M or 20G, or none for no limit\n"


def test_leases_of_a_folder_that_was_deleted_are_taken_anew(tmp_path: Path) -> None:
    folders = SealedFolders(tmp_path)
    folders.get("cubin", "ab" * 16, lambda folder: {"files": []})
    for path in sorted((tmp_path / "users").iterdir()):
        path.unlink()
    folders.find("cubin", "ab" * 16)
    assert in_use(tmp_path) == {f"cubin/{'ab' * 16}"}
