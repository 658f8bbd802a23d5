"""What this machine runs kernels with, compared with what a record says."""

import os
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from autotune.core.errors import BuildError
from autotune.core.model_version import MODEL, UNCOUNTED_DRIVER, model_of


def differences(driver: str, compiler: str) -> Iterator[str]:
    """Sentences on a driver or compiler that is not the recorded one; nothing where either is unknown."""
    from autotune.gpus.nvml import driver_release

    here = driver_release()
    if driver and here and driver != here:
        yield f"timed with driver {driver}, this machine has {here}"
    present = present_compiler() if compiler else None
    if present and compiler != present:
        yield f"built with {compiler}, this machine has {present}"


def older_estimate(driver: str) -> Iterator[str]:
    """A sentence on an estimate that an older model made; `driver` as its record has it."""
    if driver == UNCOUNTED_DRIVER:
        yield "its work could not be counted: the time is a roofline's figure, which compares with no other"
    elif model_of(driver) < MODEL:
        yield f"estimated by model {model_of(driver)}, an older one than {MODEL}: search again for new figures"


def present_compiler() -> str | None:
    """The nvcc that builds would use, as records name it: `nvcc 13.0.88`; None without one.

    Where only the wheel can be meant, its metadata tells the version: that is quicker than asking the compiler.
    """
    if not _toolkit_may_be_here():
        try:
            return f"nvcc {metadata.version('nvidia-cuda-nvcc')}"
        except metadata.PackageNotFoundError:
            return None
    from autotune.compilers.toolchain import find_nvcc

    try:
        return str(find_nvcc())
    except BuildError:
        return None


def _toolkit_may_be_here() -> bool:
    named = any(os.environ.get(name) for name in ("AUTOTUNE_NVCC", "CUDA_HOME", "CUDA_PATH"))
    return named or shutil.which("nvcc") is not None or Path("/usr/local/cuda/bin/nvcc").exists()
