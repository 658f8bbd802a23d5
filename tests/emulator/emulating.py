"""Hand-made CUDA, built once a test session, run by the emulator on NumPy arrays."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import DTYPES
from autotune.core.plan import Arg, Buffer, Dim3, Launch, LaunchPlan, PointerArg, ScalarArg
from autotune.devices.emulated import CpuDevice
from autotune.emulator.building import build_emulator
from autotune.gpus.known import gpu
from tests.sources import kernel_source

SPEC = gpu("h200")
NAMES = {dtype.array_name: name for name, dtype in DTYPES.items()}


@cache
def build(code: str) -> Artifact:
    """A source with every `extern "C" __global__` kernel in it callable."""
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(', code)
    launches = tuple(Launch(name, (1, 1, 1), (1, 1, 1), 0, ()) for name in names)
    return build_emulator(kernel_source(code, plan=LaunchPlan((), launches)), BuildCache())


def scalar(value: int | float) -> ScalarArg:
    """An `int` or a `float`."""
    return ScalarArg("x", "int", value) if isinstance(value, int) else ScalarArg("x", "float", value)


def buffers_of(arrays: Mapping[str, NDArray[Any]]) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, NAMES[array.dtype.name], array.size, "workspace") for name, array in arrays.items())


def pointer(buffer: Buffer, offset: int = 0) -> PointerArg:
    return PointerArg(buffer.name, buffer.name, offset, buffer.dtype, buffer.role)


def run(
    code: str,
    kernel: str,
    arrays: Mapping[str, NDArray[Any]],
    *scalars: int | float,
    grid: Dim3 = (1, 1, 1),
    block: Dim3 = (32, 1, 1),
    smem: int = 0,
    device: CpuDevice | None = None,
) -> dict[str, NDArray[Any]]:
    """Launch with a pointer to each array, then the scalars; the arrays' content afterwards, in their shapes."""
    device = device or CpuDevice(SPEC, 2)
    buffers = buffers_of(arrays)
    args: tuple[Arg, ...] = (*map(pointer, buffers), *map(scalar, scalars))
    plan = LaunchPlan(buffers, (Launch(kernel, grid, block, smem, args),))
    device.allocate(buffers)
    for name, array in arrays.items():
        device.upload(name, array.reshape(-1))
    program = device.load(build(code), plan)
    try:
        device.run(program, plan)
    finally:
        program.close()
    return {name: device.download(name).reshape(array.shape) for name, array in arrays.items()}


def ints(*shape: int) -> NDArray[np.int32]:
    """Room for results, filled with a number that no test expects."""
    return np.full(shape, -77, np.int32)


def floats(*shape: int) -> NDArray[np.float32]:
    return np.full(shape, -77.5, np.float32)
