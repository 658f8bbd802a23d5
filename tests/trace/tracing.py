"""Hand-made CUDA, built traced once a test session, run on NumPy arrays."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.core.plan import Arg, Buffer, Dim3, Launch, LaunchPlan, Role, TensorMapArg, TensorSpec, Zero
from autotune.core.resources import resource_root
from autotune.emulator.building import build_emulator
from autotune.families.includes import collect_includes
from autotune.trace.observed import Trace
from autotune.trace.tracing import trace_plan
from tests.emulator.emulating import NAMES, pointer, scalar
from tests.sources import kernel_source

_KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(')


@cache
def build(code: str) -> Artifact:
    """A traced source with every kernel in it callable."""
    launches = tuple(Launch(name, (1, 1, 1), (1, 1, 1), 0, ()) for name in _KERNEL.findall(code))
    ours = "\n".join(re.findall(r'#include "common/.*', code))  # other headers are the emulator's
    includes = collect_includes(ours, (resource_root("templates"),), "a test's kernels")
    source = kernel_source(code, header="", includes=includes, plan=LaunchPlan((), launches))
    return build_emulator(source, BuildCache(), traced=True)


def trace(
    code: str,
    kernel: str,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
    *scalars: int | float,
    grid: Dim3 = (1, 1, 1),
    block: Dim3 = (32, 1, 1),
    smem: int = 0,
    blocks: int | None = None,
    tensors: Sequence[TensorSpec] = (),
    times: int = 1,
    cleared: Sequence[str] = (),
    maps: Sequence[TensorMapArg] = (),
) -> Trace:
    """Launch with a pointer to each input and output (written by nobody if not `cleared`), the scalars, the maps."""
    buffers = (*_buffers(inputs, "input"), *_buffers(outputs, "output"))
    args: tuple[Arg, ...] = (*map(pointer, buffers), *map(scalar, scalars), *maps)
    plan = LaunchPlan(buffers, (*map(Zero, cleared), *(Launch(kernel, grid, block, smem, args),) * times))
    images = {name: array.reshape(-1) for name, array in inputs.items()}
    return trace_plan(build(code), plan, images, tensors, blocks=blocks)


def line_of(code: str, marker: str) -> int:
    """The line with the comment `// marker`."""
    found = [number for number, text in enumerate(code.splitlines(), 1) if text.rstrip().endswith(f"// {marker}")]
    assert len(found) == 1, f"{marker} is on lines {found}"
    return found[0]


def _buffers(arrays: Mapping[str, NDArray[Any]], role: Role) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, NAMES[array.dtype.name], array.size, role) for name, array in arrays.items())
