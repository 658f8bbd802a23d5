"""Holds a GPU to a cap as long as another process lives: `python -m autotune.gpus.cap_keeper`.

Limits of a GPU outlast whoever has set them, and the one who did may be killed at any moment. So they are set, and
taken back, by this process: it is told over its connection what to hold, answers, and waits for the end of its stdin,
which comes when the other closes it or ends, by `kill -9` too. It leads a session of its own, ignores what ends jobs.
Only its own violent death leaves the limits: `nvidia-smi --reset-gpu-clocks`, `nvidia-smi --power-limit=WATTS`.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.core.channel import LOST, open_channel
from autotune.core.errors import AutotuneError, DeviceRefused, UsageError
from autotune.gpus.cap import Cap
from autotune.gpus.nvml import NO_PERMISSION, OK, ManagedGpu, managed_gpu

_HOW = (
    "limits of a GPU are root's to set: run the search as root (`sudo -E $(which autotune) search …`), in a container "
    "with the right to (`--cap-add SYS_ADMIN`)"
)
_NEAR = 3
_PATIENCE_S = 2.0


def main() -> None:
    """Entry point of the process."""
    connection = open_channel()
    with contextlib.suppress(*LOST):
        bus_id, cap = connection.recv()
        try:
            with _alone(bus_id), _held(_gpu(bus_id), cap):
                connection.send(None)
                os.read(0, 1)
        except AutotuneError as error:
            connection.send(error)


@contextlib.contextmanager
def _alone(bus_id: str) -> Iterator[None]:
    """One keeper a GPU: two would take back each other's limits."""
    path = Path(tempfile.gettempdir()) / f"autotune-cap-{bus_id.replace(':', '-')}.lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DeviceRefused(f"who holds a GPU to limits cannot be noted in {path}: {error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DeviceRefused(f"another search holds this GPU ({bus_id}) to its own limits: wait for its end") from None
    finally:
        os.close(file)


def _gpu(bus_id: str) -> ManagedGpu:
    found = managed_gpu(bus_id)
    if found is None:
        raise DeviceRefused(
            f"NVIDIA's management library (libnvidia-ml.so.1) is not here or knows no GPU {bus_id}: without it neither "
            "--clock nor --power-limit can be set"
        )
    return found


@contextlib.contextmanager
def _held(gpu: ManagedGpu, cap: Cap) -> Iterator[None]:
    """Within the block the GPU is held to a cap; what has been set is taken back whatever happens.

    Raises:
        UsageError: the GPU has no such clock, or takes no such limit.
        DeviceRefused: this user may not set it, or nobody can.
    """
    with contextlib.ExitStack() as back:
        if cap.clock_mhz is not None:
            _check_clock(gpu, cap.clock_mhz)
            _do(gpu, "--clock", "nvmlDeviceSetGpuLockedClocks", cap.clock_mhz, cap.clock_mhz)
            back.callback(gpu.call, "nvmlDeviceResetGpuLockedClocks")
        if cap.power_w is not None:
            before = gpu.number("nvmlDeviceGetPowerManagementLimit")
            _check_power(gpu, cap.power_w)
            _do(gpu, "--power-limit", "nvmlDeviceSetPowerManagementLimit", 1000 * cap.power_w)
            if before is not None:
                back.callback(gpu.call, "nvmlDeviceSetPowerManagementLimit", before)
            _await_power(gpu, cap.power_w)
        yield


def _do(gpu: ManagedGpu, option: str, function: str, *arguments: int) -> None:
    status = gpu.call(function, *arguments)
    if status == NO_PERMISSION:
        raise DeviceRefused(f"{option} cannot be set ({gpu.said(status)}): {_HOW}")
    if status != OK:
        raise DeviceRefused(f"{option} cannot be set on this GPU: {gpu.said(status)}")


def _await_power(gpu: ManagedGpu, watts: int) -> None:
    """Until the limit is in force: virtual machines' drivers have been seen to take one and to keep their own."""
    deadline = time.monotonic() + _PATIENCE_S
    while (limits := gpu.power_limits) is not None and limits[0] > watts:
        if time.monotonic() > deadline:
            raise DeviceRefused(
                f"--power-limit {watts}: the driver took the limit, but {limits[0]:.0f} W are still in force; on a "
                "virtual machine the limit is the host's to set"
            )
        time.sleep(0.05)


def _check_clock(gpu: ManagedGpu, mhz: int) -> None:
    """Other clocks would be rounded in silence."""
    memory = gpu.numbers("nvmlDeviceGetSupportedMemoryClocks")
    clocks = gpu.numbers("nvmlDeviceGetSupportedGraphicsClocks", max(memory)) if memory else ()
    if clocks and mhz not in clocks:
        near = sorted(sorted(clocks, key=lambda clock: abs(clock - mhz))[:_NEAR])
        raise UsageError(
            f"--clock {mhz}: this GPU has no such clock; the nearest are {', '.join(map(str, near))} MHz, of "
            f"{min(clocks)} to {max(clocks)}"
        )


def _check_power(gpu: ManagedGpu, watts: int) -> None:
    limits = gpu.pair("nvmlDeviceGetPowerManagementLimitConstraints")
    if limits is not None and not limits[0] <= 1000 * watts <= limits[1]:
        least, most = (limit // 1000 for limit in limits)
        raise UsageError(f"--power-limit {watts}: this GPU takes limits from {least} to {most} W")


if __name__ == "__main__":
    main()
