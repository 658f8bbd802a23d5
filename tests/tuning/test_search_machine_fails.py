"""A search on a machine that fails: compilers and processes that are killed are no verdict on a candidate."""

import os
import shutil
import signal
import stat
import subprocess
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.compilers.toolchain import find_gxx
from autotune.core.model_version import DRIVER, UNCOUNTED_DRIVER
from autotune.core.outcome import Outcome
from autotune.core.settings import cache_folder
from autotune.emulator.support import emulator_support
from autotune.estimate.model import METHOD
from autotune.store import open_store
from autotune.store.records import StoredMeasurement
from autotune.trace.remote import TracingProcess

Capture = pytest.CaptureFixture[str]

SEARCH = [
    "search", "--op", "forward", "--template", "flash_simt", "--B", "1", "--NH", "1", "--T", "16", "--HS", "32",
    "--dtype", "fp32", "--device", "cpu", "--trials", "1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "autotune.db"))
    for name in ("AUTOTUNE_DEVICE", "AUTOTUNE_TARGET"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build cache in which no candidate has been built; what all emulated builds share is there."""
    usual = cache_folder()
    for traced in (False, True):
        emulator_support(usual, traced)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "emulator-support").symlink_to(usual / "emulator-support")
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))


def executable(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def kill_compilers(folder: Path, monkeypatch: pytest.MonkeyPatch, argument: str, times: int) -> None:
    """Have g++ run a cc1plus that kills itself the first times that it sees an argument, and notes each in `killed`."""
    gxx = find_gxx().path
    real = subprocess.run([gxx, "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "programs").mkdir()
    (folder / "killed").touch()
    executable(
        folder / "programs" / "cc1plus",
        f'case "$*" in *{argument}*) if [ $(wc -l < {folder}/killed) -lt {times} ]; then\n'
        f'echo killed >> {folder}/killed; kill -9 $$; fi;; esac\nexec {real} "$@"',
    )
    executable(folder / "g++", f'exec {shutil.which(str(gxx))} -B{folder}/programs/ "$@"')
    monkeypatch.setenv("CXX", str(folder / "g++"))


def end_tracer(monkeypatch: pytest.MonkeyPatch, number: signal.Signals, times: int) -> list[int]:
    """Have a signal end the process that traces the first times that it is asked; what it ended is listed."""
    ended: list[int] = []
    running = TracingProcess._running

    def doomed(tracer: TracingProcess) -> Connection:
        connection = running(tracer)
        if len(ended) < times:
            assert tracer._companion.process is not None
            ended.append(tracer._companion.process.pid)
            os.kill(ended[-1], number)
        return connection

    monkeypatch.setattr(TracingProcess, "_running", doomed)
    return ended


def recorded() -> list[StoredMeasurement]:
    with open_store() as store:
        return list(store.measurements())


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("argument", ["EMULATOR_TRACE", "kernel.cpp"], ids=["traced build", "emulated build"])
def test_a_killed_compiler_stops_the_search_and_nothing_is_recorded(
    argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    kill_compilers(tmp_path, monkeypatch, argument, 99)
    assert run(SEARCH) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: g++ ")
    assert "twice and for no fault of the source" in said
    assert "Killed signal terminated program cc1plus" in said
    assert recorded() == []
    assert (tmp_path / "killed").read_text().splitlines() == ["killed"] * 2
    monkeypatch.delenv("CXX")  # what was killed has left nothing in the cache
    assert run(SEARCH) == 0
    [record] = recorded()
    assert record.measurement.timing is not None
    assert (record.measurement.outcome, record.measurement.timing.method) == (Outcome.OK, METHOD)


@pytest.mark.usefixtures("own_cache")
def test_one_that_is_killed_once_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_compilers(tmp_path, monkeypatch, "EMULATOR_TRACE", 1)
    assert run(SEARCH) == 0
    [record] = recorded()
    assert record.measurement.timing is not None
    assert (record.measurement.outcome, record.measurement.timing.method) == (Outcome.OK, METHOD)
    assert (tmp_path / "killed").read_text().splitlines() == ["killed"]


def test_a_traced_run_that_is_killed_twice_stops_the_search(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    ended = end_tracer(monkeypatch, signal.SIGKILL, 99)
    assert run(SEARCH) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "the traced run tore its process down (exit status -9), twice: somebody kills it" in said
    assert (len(ended), recorded()) == (2, [])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_traced_run_that_is_killed_once_is_made_again_and_one_that_crashed_is_not_counted(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A kernel may well tear its process down; that it gets no estimate of the model's is said everywhere."""
    end_tracer(monkeypatch, number, 1)
    assert run(SEARCH) == 0
    shown = capsys.readouterr().out
    [record] = recorded()
    measurement, timing = record.measurement, record.measurement.timing
    assert timing is not None
    assert measurement.outcome is Outcome.OK
    if number is signal.SIGKILL:
        assert (timing.label, timing.method, record.driver, measurement.message) == ("estimated", METHOD, DRIVER, "")
        assert "not counted" not in shown
        return
    assert (timing.label, record.driver) == ("estimated, not counted", UNCOUNTED_DRIVER)
    assert "behind all that are: the traced run tore its process down (exit status -11)" in measurement.message
    assert "(not counted)" in shown
    assert "(estimate, not counted)" in shown
    assert run(["list", "trials"]) == 0
    assert "estimated, not counted" in capsys.readouterr().out
    assert run(["best", *SEARCH[1:3], *SEARCH[5:15], "--device", "h200", "--json"]) == 0
    assert "its work could not be counted" in capsys.readouterr().out
