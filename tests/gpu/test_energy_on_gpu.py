"""Energies and limits on a real GPU: what physics and the driver say must agree, whatever the figures are."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.errors import DeviceRefused, UsageError
from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg
from autotune.devices.cuda import CudaDevice
from autotune.devices.cuda_program import CudaProgram
from autotune.gpus.cap import Cap
from autotune.gpus.capped import capped
from autotune.gpus.nvml import managed_gpu
from autotune.gpus.present import bus_id, present_gpu
from tests.gpu.alone import others_at_work
from tests.sources import kernel_source

pytestmark = pytest.mark.gpu

BODY = """\
extern "C" __global__ void spin(float* out, int n) {
    float x = threadIdx.x, y = blockIdx.x;
    for (int i = 0; i < n; ++i) { x = x * y + 1.0f; y = y * x - 1.0f; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x + y;
}
"""
THREADS, BLOCKS = 256, 1024


def plan(n: int) -> LaunchPlan:
    out = PointerArg("out", "out", 0, "fp32", "output")
    launch = Launch("spin", (BLOCKS, 1, 1), (THREADS, 1, 1), 0, (out, ScalarArg("n", "int", n)))
    return LaunchPlan((Buffer("out", "fp32", THREADS * BLOCKS, "output"),), (launch,))


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    found = CudaDevice(0)
    if found.why_no_energy():
        pytest.skip(found.why_no_energy())
    yield found
    found.close()


@pytest.fixture(scope="module")
def program(device: CudaDevice, tmp_path_factory: pytest.TempPathFactory) -> CudaProgram:
    spec = present_gpu()
    assert spec is not None
    artifact = build_cubin(kernel_source(BODY), spec.arch, BuildCache(tmp_path_factory.mktemp("cache")))
    device.allocate(plan(1).buffers)
    loaded = device.load(artifact, plan(1))
    assert isinstance(loaded, CudaProgram)
    return loaded


def skip_unless_alone() -> None:
    """The counter is that of the whole GPU: others' work would be taken for this test's."""
    found = managed_gpu(bus_id(0) or "")
    others = "" if found is None else others_at_work(found)
    if others:
        pytest.skip(others)


def test_twice_the_work_takes_more_energy(device: CudaDevice, program: CudaProgram) -> None:
    skip_unless_alone()
    idle = device.idle_power_w()
    once = device.energy(program, plan(20_000), 0.5)
    skip_unless_alone()
    twice = device.energy(program, plan(40_000), 0.5)
    skip_unless_alone()
    limits = managed_gpu(bus_id(0) or "")
    assert limits is not None
    assert limits.power_limits is not None
    for energy in (once, twice):
        print(energy, f"idle {idle} W")  # noqa: T201 - figures to read
        assert idle < energy.power_w < 1.2 * limits.power_limits[0]
        assert energy.seconds >= 0.5
        assert energy.mj == pytest.approx(energy.power_w * energy.call_ms)
    assert 1.5 < twice.mj / once.mj < 2.5


@pytest.mark.skipif(os.geteuid() != 0, reason="limits are root's to set")
def test_a_real_gpu_is_held_and_let_go(tmp_path: Path) -> None:
    found = managed_gpu(bus_id(0) or "")
    assert found is not None
    before = found.power_limits
    clocks = found.numbers(
        "nvmlDeviceGetSupportedGraphicsClocks", max(found.numbers("nvmlDeviceGetSupportedMemoryClocks"))
    )
    with pytest.raises(UsageError, match="nearest are"), capped(Cap(max(clocks) + 1), 0):
        pass
    try:
        with capped(Cap(sorted(clocks)[len(clocks) // 2], int(before[1]) - 50 if before else None), 0):
            during = found.power_limits
    except DeviceRefused as refused:
        pytest.skip(str(refused))
    assert before is not None
    assert during == (int(before[1]) - 50, before[1])
    assert found.power_limits == before
