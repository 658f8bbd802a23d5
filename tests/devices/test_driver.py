"""Calls of the CUDA driver, as one with the real prototypes receives them."""

import ctypes
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.compilers.artifact import Artifact
from autotune.compilers.toolchain import cuda_include_dirs, find_gxx
from autotune.core.errors import DeviceMissing, LaunchError
from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, ViewArg, Zero
from autotune.devices.driver import Driver
from autotune.devices.prepared import Cubin, Prepared
from autotune.gpus.known import gpu

ARGS = (
    ViewArg("x", "x", 3, "fp16", (-5,), "input"),
    ScalarArg("scale", "float", 0.5),
    ScalarArg("T", "int", 77),
)
PLAN = LaunchPlan(
    (Buffer("sums", "fp32", 100, "workspace"), Buffer("more", "fp32", 10, "workspace")),
    (Zero("more"), Launch("k", (4, 3, 2), (32, 1, 1), 2048, ARGS)),
)
FUNCTION = "7f2000000000"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("cuda") / "libcuda.so"
    includes = [f"-I{folder}" for folder in cuda_include_dirs()]
    source = Path(__file__).with_name("fake_cuda.cpp")
    command = [str(find_gxx().path), "-std=c++17", "-shared", "-fPIC", *includes, "-o", str(path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    found = ctypes.CDLL(str(path))
    found.fake_notes.restype = ctypes.c_char_p
    return found


class Asked:
    """What the library noted since it was last asked."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __call__(self) -> list[str]:
        notes = self._library.fake_notes().decode().splitlines()
        self._library.fake_clear()
        return list(notes)

    def fail(self, status: int) -> None:
        self._library.fake_fail(status)


@pytest.fixture
def asked(library: ctypes.CDLL) -> Iterator[Asked]:
    library.fake_clear()
    yield Asked(library)
    library.fake_fail(0)


@pytest.fixture
def cubin(library: ctypes.CDLL, asked: Asked, tmp_path: Path) -> tuple[Driver, Cubin]:
    (tmp_path / "kernel.cubin").write_bytes(b"\x7fELF\0and so on")
    artifact: Any = Artifact(
        kind="cubin", path=tmp_path / "kernel.cubin", source_path=tmp_path / "kernel.cu", key="", binary_hash="",
        kernels=(), compiler="", seconds=0.0, cached=False,
    )  # fmt: skip
    driver = Driver(library)
    return driver, Cubin(driver, 1, artifact, PLAN, gpu("h200"))


def test_loading(asked: Asked, cubin: tuple[Driver, Cubin]) -> None:
    assert asked() == [
        "device 1", "retain 11", "push 7f000000000b",
        "mode 2", "load ELF", "mode 0", "function 7f1000000000 k",
        f"get 0 of {FUNCTION}", f"get 4 of {FUNCTION}", f"get 1 of {FUNCTION}",
        f"set 8 of {FUNCTION} to {gpu('h200').max_shared_memory - 101}", "pop",
    ]  # fmt: skip
    with pytest.raises(
        LaunchError, match="kernel k asks for 1024 threads a block; NVIDIA H200 allows 100 with its 104"
    ):
        cubin[1].check(LaunchPlan((), (Launch("k", (1, 1, 1), (1024, 1, 1), 0, ARGS),)))
    with pytest.raises(LaunchError, match="asks for 1000101 bytes of shared memory"):
        cubin[1].check(LaunchPlan((), (Launch("k", (1, 1, 1), (32, 1, 1), 1_000_000, ARGS),)))


def test_launches(asked: Asked, cubin: tuple[Driver, Cubin]) -> None:
    prepared = Prepared(cubin[0], 1, cubin[1], PLAN, ["y", "x"])
    assert prepared.workspace_bytes == 768
    asked()
    for stream in (0, 0x7F5000000000, 0):
        prepared([1, 0x7F6000000000, 0x7F7000000000], stream)
        assert asked() == [
            f"memset 7f7000000200 0 40 {stream:x}",
            f"launch {FUNCTION} grid 4 3 2 block 32 1 1 smem 2048 stream {stream:x}: 7f6000000006 -5 0.5 77",
        ]


def test_launches_in_clusters(asked: Asked, cubin: tuple[Driver, Cubin]) -> None:
    """The second one's blocks; the fourth one overlaps the third: attributes where the configuration says."""
    launch = Launch("k", (4, 3, 2), (32, 1, 1), 2048, ARGS)
    plan = LaunchPlan(
        PLAN.buffers, (launch, replace(launch, cluster=(2, 3, 1)), launch, replace(launch, overlaps=True))
    )
    prepared = Prepared(cubin[0], 1, cubin[1], plan, ["x"])
    asked()
    prepared([0x7F6000000000, 0x7F7000000000], 0)
    said = f"launch {FUNCTION} grid 4 3 2 block 32 1 1 smem 2048 stream 0: 7f6000000006 -5 0.5 77"
    assert asked() == [said, "cluster 2 3 1", said, said, "overlaps 1", said]
    both = LaunchPlan(PLAN.buffers, (launch, replace(launch, cluster=(2, 3, 1), overlaps=True)))
    Prepared(cubin[0], 1, cubin[1], both, ["x"])([0x7F6000000000, 0x7F7000000000], 0)
    assert asked()[-4:] == [said, "cluster 2 3 1", "overlaps 1", said]


def test_a_launch_without_a_context(asked: Asked, cubin: tuple[Driver, Cubin]) -> None:
    prepared = Prepared(cubin[0], 1, cubin[1], PLAN, ["x"])
    asked()
    asked.fail(201)
    prepared([4096, 8192], 0)
    assert [line.split()[0] for line in asked()] == ["memset", "push", "memset", "launch", "pop"]
    asked.fail(700)
    with pytest.raises(LaunchError, match=r"clearing more: it went wrong \(CUDA error 700\)"):
        prepared([4096, 8192], 0)


def test_a_pointer_is_one_word(asked: Asked, cubin: tuple[Driver, Cubin]) -> None:
    """A launch whose parameters are not those of the kernel is refused by it, not read past their end."""
    short = LaunchPlan((), (Launch("k", (1, 1, 1), (32, 1, 1), 0, (PointerArg("x", "x", 0, "fp16", "input"),)),))
    with pytest.raises(LaunchError, match=r"kernel k: it went wrong \(CUDA error 1\)"):
        Prepared(cubin[0], 1, cubin[1], short, ["x"])([4096], 0)


def test_memory_streams_and_refusals(library: ctypes.CDLL, asked: Asked) -> None:
    driver = Driver(library)
    assert driver.allocate(0) == 0x7F3000000000
    host = ctypes.create_string_buffer(b"hello", 8)
    driver.copy_in(0x7F3000000000, ctypes.addressof(host), 1 << 33)
    driver.copy_out(ctypes.addressof(host), 0x7F3000000000, 5)
    assert host.value == b"xxxxx"
    driver.free(0x7F3000000000)
    driver.follow(0x7F5000000000, 0x7F5000000008)
    assert asked() == [
        "mode 2", "allocate 1", "mode 0", "in 7f3000000000 hello 8589934592", "out 7f3000000000 5", "free 7f3000000000",
        "event 2", "record 7f4000000000 7f5000000008", "wait 7f5000000000 7f4000000000 0", "destroy 7f4000000000",
    ]  # fmt: skip
    asked.fail(2)
    with pytest.raises(LaunchError, match=r"cannot copy to the GPU: it went wrong \(CUDA error 2\)"):
        driver.copy_in(1, ctypes.addressof(host), 1)
    asked.fail(100)
    with (
        pytest.raises(DeviceMissing, match=r"GPU 3 cannot be used: it went wrong \(CUDA error 100\)"),
        driver.current(3),
    ):
        pass
    assert driver.said(999) == "CUDA error 999"
