"""What runs others' code gets no database's URL and nobody's credentials, and limits."""

import os
import re
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from autotune.compilers.running import compile_source
from autotune.core.child import Child
from autotune.core.confinement import compilers_environment, memory_of_machine, part_of_environment
from autotune.core.errors import CompileError
from autotune.devices.client import WorkerClient
from autotune.devices.factory import CpuOpener
from autotune.families.bodies import _Renderer
from autotune.gpus.known import gpu
from autotune.trace.remote import TracingProcess

SECRET = "hunter2"
SECRETS = ("AUTOTUNE_DB", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DATABASE_URL", "HTTPS_PROXY")


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"postgresql+psycopg://admin:{SECRET}@host/db")


def worker() -> tuple[Child, Callable[[], None]]:
    client = WorkerClient(CpuOpener(gpu("h200")))
    client.start()
    assert client._companion.process is not None
    return client._companion.process, client.close


def running(owner: TracingProcess | _Renderer) -> tuple[Child, Connection]:
    connection = owner._running()
    assert owner._companion.process is not None
    return owner._companion.process, connection


def settled(process: Child) -> dict[str, int]:
    """The limits, once the process has set them: soft ones by name."""
    for _ in range(2000):
        text = Path(f"/proc/{process.pid}/limits").read_text()
        limits = {found[1]: found[2] for found in re.finditer(r"^(Max [a-z ]+?)  +(\S+)", text, re.MULTILINE)}
        if limits["Max file size"] != "unlimited" and limits["Max core file size"] == "0":
            break
        process.wait(0.01)
    return {name: -1 if value == "unlimited" else int(value) for name, value in limits.items()}


@pytest.mark.parametrize("kind", ["worker", "tracer", "renderer"])
def test_processes_get_a_part_of_the_environment_and_limits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if kind == "worker":
        process, close = worker()
    else:
        owner = TracingProcess() if kind == "tracer" else _Renderer()
        process, _ = running(owner)
        close = owner.close
    try:
        limits = settled(process)
        environment = Path(f"/proc/{process.pid}/environ").read_text()
    finally:
        close()
    assert "PATH=" in environment
    assert SECRET not in environment
    assert "OPENBLAS_NUM_THREADS=1\0" in environment  # they have threads of their own
    assert not any(name in environment for name in SECRETS)
    machine = memory_of_machine()
    assert limits["Max core file size"] == 0
    assert 0 < limits["Max file size"] <= machine
    if kind != "tracer":  # which maps marks for all of a buffer
        assert 0 < limits["Max data size"] <= machine
    if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]":  # noqa: PTH115 - no path
        assert 4096 <= limits["Max processes"] <= 1_000_000


def test_limits_that_are_there_already_are_kept() -> None:
    child = os.fork()
    if child == 0:
        from autotune.core.confinement import confine

        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        confine()
        os._exit(0 if resource.getrlimit(resource.RLIMIT_FSIZE) == (4096, 4096) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_addresses_that_are_hardly_touched_may_pass_the_limit_of_memory() -> None:
    child = os.fork()
    if child == 0:
        from autotune.core.confinement import confine
        from autotune.emulator.guarded import SparseMemory

        confine()
        SparseMemory(memory_of_machine() + 2**36)
        bytearray(2**24)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_compilers_print_of_the_environment_holds_no_secret(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        compile_source("sh", ["/bin/sh", "-c", "env; echo error; exit 1"], tmp_path, 60.0, lambda output: output)
    assert "PATH=" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_what_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTOTUNE_CACHE", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LC_ALL", "PYTHONHASHSEED", "CXX"):
        monkeypatch.setenv(name, "1")
        assert part_of_environment()[name] == "1"
    for name in ("NVCC_APPEND_FLAGS", "CPATH", "C_INCLUDE_PATH"):
        monkeypatch.setenv(name, "1")
        assert compilers_environment()[name] == part_of_environment()[name] == "1"
    assert not set(SECRETS) & {*part_of_environment(), *compilers_environment()}
