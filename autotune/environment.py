"""What this machine runs kernels with, compared with what a record says."""

from collections.abc import Iterator

from autotune.errors import BuildError


def differences(driver: str, compiler: str) -> Iterator[str]:
    """Sentences on a driver or compiler that is not the recorded one; nothing where either is unknown."""
    from autotune.build.toolchain import find_nvcc
    from autotune.devices.nvml import driver_release

    here = driver_release()
    if driver and here and driver != here:
        yield f"timed with driver {driver}, this machine has {here}"
    if not compiler:
        return
    try:
        present = str(find_nvcc())
    except BuildError:
        return
    if compiler != present:
        yield f"built with {compiler}, this machine has {present}"
