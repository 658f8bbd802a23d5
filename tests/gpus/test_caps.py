"""Limits of a GPU: as names of devices, and as they are set and taken back, with a library that stands for NVIDIA's."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from autotune.core.errors import DeviceMissing, DeviceRefused, UsageError
from autotune.devices.factory import CpuOpener, CudaOpener, choose_device
from autotune.gpus import capped as capped_module
from autotune.gpus import nvml
from autotune.gpus.cap import NO_CAP, Cap, parse_cap
from autotune.gpus.capped import capped
from autotune.gpus.identity import DeviceIdentity, DeviceName, gpu_of_record, parse_device
from autotune.gpus.known import gpu
from tests.gpus.nvml_double import BUS_ID, FakeGpu, build_library
from tests.processes import eventually

ROOT = Path(__file__).parents[2]
CAPS = {"1200MHz": Cap(1200), "400W": Cap(None, 400), "1200MHz+400W": Cap(1200, 400)}


@pytest.mark.parametrize("text", CAPS)
def test_a_cap_is_read_as_it_is_written(text: str) -> None:
    assert parse_cap(text) == CAPS[text]
    assert str(CAPS[text]) == text
    assert CAPS[text]


@pytest.mark.parametrize("text", ["", "400", "400W+1200MHz", "1200MHz400W", "0W", "MHz", "1200MHz+", "+400W", "1e3W"])
def test_other_texts_are_no_caps(text: str) -> None:
    assert parse_cap(text) is None


def test_a_capped_gpu_is_a_device_of_its_own() -> None:
    identity = DeviceIdentity("cuda", gpu("h200"), Cap(1200, 400))
    assert identity.name == "h200@1200MHz+400W"
    assert parse_device(identity.name) == DeviceName("cuda", "h200", cap=Cap(1200, 400))
    assert gpu_of_record(identity.name) == "h200"
    assert parse_device("cuda:1@400W") == DeviceName("cuda", index=1, cap=Cap(None, 400))
    assert parse_device("odd@name") == DeviceName("cuda", "odd@name")
    assert not NO_CAP
    assert DeviceIdentity("cuda", gpu("h200")).name == "h200"


def test_only_gpus_are_held_to_limits() -> None:
    assert CudaOpener(1).capped(Cap(1200)) == CudaOpener(1, Cap(1200))
    assert CpuOpener(gpu("h200")).capped(NO_CAP) == CpuOpener(gpu("h200"))
    with pytest.raises(UsageError, match="a GPU can be held to 1200MHz, and this is none"):
        CpuOpener(gpu("h200")).capped(Cap(1200))
    with pytest.raises(UsageError, match="--clock and --power-limit, not by the name 'h200@400W'"):
        choose_device("h200@400W")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """The GPU of this process and of those that it starts."""
    made = FakeGpu(tmp_path / "gpu")
    made.set()
    monkeypatch.setenv("FAKE_NVML", str(made.file))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(capped_module, "bus_id", lambda index: BUS_ID if index == 0 else None)
    loaded = ctypes.CDLL(str(library))
    assert loaded.nvmlInit_v2() == 0
    monkeypatch.setattr(nvml, "_library", lambda: loaded)
    return made


def test_a_cap_is_set_and_taken_back(fake: FakeGpu) -> None:
    fake.set(limit=650_000)  # somebody else's
    with capped(Cap(1200, 400), 0):
        assert fake.held == (1200, 400)
    assert fake.held == (0, 650)
    with pytest.raises(ZeroDivisionError), capped(Cap(1395), 0):
        _fails(fake)
    assert fake.held == (0, 650)


def _fails(fake: FakeGpu) -> None:
    assert fake.held == (1395, 650)
    raise ZeroDivisionError


def test_nothing_is_set_without_a_cap(fake: FakeGpu) -> None:
    with capped(NO_CAP, 0):
        pass
    assert fake.state["sets"] == 0


def test_kill_9_takes_it_back(fake: FakeGpu, tmp_path: Path) -> None:
    script = f"""
        import time
        from autotune.gpus import capped
        from autotune.gpus.cap import Cap
        capped.bus_id = lambda index: {BUS_ID!r}
        with capped.capped(Cap(1785, 300), 0):
            print("held", flush=True)
            time.sleep(600)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert fake.held == (1785, 300)
        with pytest.raises(DeviceRefused, match="another search holds this GPU"), capped(Cap(1200), 0):
            pass
        assert fake.held == (1785, 300)
        process.send_signal(signal.SIGKILL)
    eventually(lambda: fake.held == (0, 700))


def test_who_may_not_is_told_what_to_do(fake: FakeGpu) -> None:
    fake.set(permitted=0)
    with (
        pytest.raises(DeviceRefused, match=r"--clock cannot be set \(Insufficient Permissions\).*as root"),
        capped(Cap(1200), 0),
    ):
        pass
    with pytest.raises(DeviceRefused, match="--power-limit cannot be set") as refused, capped(Cap(None, 400), 0):
        pass
    assert refused.value.exit_code == DeviceMissing.exit_code == 4


def test_a_limit_that_is_taken_must_be_in_force(fake: FakeGpu) -> None:
    fake.set(permitted=2)
    with pytest.raises(DeviceRefused, match="took the limit, but 700 W are still in force"), capped(Cap(1200, 400), 0):
        pass
    assert fake.held == (0, 700)


def test_a_gpu_takes_its_own_clocks_and_limits_alone(fake: FakeGpu) -> None:
    with (
        pytest.raises(UsageError, match=r"--clock 1300.*nearest are 1200, 1395, 1590 MHz, of 1200 to 1980"),
        capped(Cap(1300), 0),
    ):
        pass
    with (
        pytest.raises(UsageError, match="--power-limit 100: this GPU takes limits from 200 to 700 W"),
        capped(Cap(1200, 100), 0),
    ):
        pass
    assert fake.held == (0, 700)  # the clock had been locked by then
    with pytest.raises(DeviceRefused, match="does not say where GPU 1 sits"), capped(Cap(1200), 1):
        pass


def test_without_the_library_nothing_is_held(tmp_path: Path, fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "none"))
    with pytest.raises(DeviceRefused, match="libnvidia-ml"), capped(Cap(1200), 0):
        pass


def test_what_the_library_says(fake: FakeGpu) -> None:
    found = nvml.managed_gpu(BUS_ID)
    assert found is not None
    assert nvml.managed_gpu("0000:99:00.0") is None
    assert nvml.read_state(BUS_ID) == nvml.Reading(1980.0, 90.0, 41.0)
    assert (found.energy_mj, found.energy_mj) == (500, 1000)
    assert found.power_limits == (700.0, 700.0)
    assert not found.divided
    assert found.numbers("nvmlDeviceGetSupportedGraphicsClocks", 3201) == (1980, 1785, 1590, 1395, 1200)
    assert found.numbers("nvmlDeviceGetSupportedGraphicsClocks", 1) == ()
    assert found.call("nvmlOfAnotherDriver") == nvml.NOT_SUPPORTED


def test_a_limit_of_somebody_else_is_recorded(fake: FakeGpu) -> None:
    fake.set(limit=400_000, counter=0, mig=1, power=0)
    assert nvml.power_limit(BUS_ID) == "400 W of 700"
    assert nvml.power_limit("0000:99:00.0") == ""
    found = nvml.managed_gpu(BUS_ID)
    assert found is not None
    assert (found.energy_mj, found.power_w, found.divided) == (None, None, True)
