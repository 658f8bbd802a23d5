"""Running a launch plan traced: every access of every emulated thread is seen.

```
artifact = build_emulator(source, cache, traced=True)
trace = trace_plan(artifact, source.plan, images, tensors)
trace.kernels[0].sectors("global load"), trace.kernels[0].conflicts, trace.findings
```
`images` are the input storages as 1-D arrays (`autotune.ops.expected.expect(...).images`, or `images_of` here, which
computes no reference). Counters of a `KernelTrace` are of its traced blocks; `KernelTrace.scale` leads to all blocks.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.core.dtypes import DTYPES, numpy_dtype
from autotune.core.errors import LaunchError
from autotune.core.plan import Buffer, Launch, LaunchPlan, TensorSpec, Zero, pack_arguments
from autotune.emulator.emulated_maps import encode_tensor_map
from autotune.emulator.library import Failure
from autotune.ops.expected import covered
from autotune.trace.arithmetic_counts import count_arithmetic
from autotune.trace.findings import describe, words_of
from autotune.trace.memory import MARGIN, TracedMemory
from autotune.trace.observed import KernelTrace, LineCounters, Operation, Place, Trace
from autotune.trace.sampling import sample_blocks
from autotune.trace.source_lines import Lines, call_site
from autotune.trace.traced_library import RawPlace, TracedLibrary

SAMPLED_BLOCKS = 6
"""Blocks of each launch that are traced in full, unless said otherwise."""

_OPERATIONS: tuple[Operation, ...] = (
    "global load", "global store", "global atomic", "shared load", "shared store", "shared atomic", "barrier",
    "warp barrier", "shuffle", "vote", "tensor", "matrix load", "other", "async copy",
)  # fmt: skip


def trace_plan(
    artifact: Artifact,
    plan: LaunchPlan,
    images: Mapping[str, NDArray[Any]],
    tensors: Sequence[TensorSpec] = (),
    *,
    blocks: int | None = SAMPLED_BLOCKS,
    threads: int = 2,
    arithmetic: bool = True,
) -> Trace:
    """Run all steps of a plan once, on memory that nobody has written but for the inputs.

    Args:
        artifact: of `build_emulator(..., traced=True)`.
        plan: buffers and steps.
        images: 1-D content of each input buffer, by name.
        tensors: what lies in the buffers; accesses between tensors are then told.
        blocks: of each launch are traced in full; None: all. Of the others only global memory is looked at.
        threads: OS threads.
        arithmetic: also count arithmetic operations (needs a disassembly, about 0.1 s).

    Raises:
        LaunchError: the binary cannot be loaded or there is not enough memory. A failing kernel is a finding.
        BuildError: addr2line or objdump is missing.
    """
    run = _Run(artifact, plan, images, tensors)
    started = time.monotonic()
    with closing(run.loaded):
        return run.trace(blocks, threads, arithmetic, started)


class _Run:
    def __init__(
        self,
        artifact: Artifact,
        plan: LaunchPlan,
        images: Mapping[str, NDArray[Any]],
        tensors: Sequence[TensorSpec],
    ) -> None:
        self._plan = plan
        self._artifact = artifact
        begin = {**images, **{name: images[before] for name, before in plan.restores if before in images}}
        self._memory = {buffer.name: _filled(buffer, begin.get(buffer.name)) for buffer in plan.buffers}
        self._covered = {buffer.name: _covered(buffer, tensors) for buffer in plan.buffers}
        self._lines = Lines(artifact.path)
        self.loaded = TracedLibrary(artifact.path, [self._place(buffer) for buffer in plan.buffers])
        for name, _ in plan.restores:
            self._set_written(name)

    def trace(self, blocks: int | None, threads: int, arithmetic: bool, started: float) -> Trace:
        kernels: list[KernelTrace] = []
        failure: Failure | None = None
        truncated = 0
        for step in self._plan.steps:
            if isinstance(step, Zero):
                self._memory[step.buffer].fill(0)
                self._set_written(step.buffer)
                continue
            sampled = sample_blocks(step.grid, blocks)
            failure = self._launch(step, sampled, threads)
            truncated += self.loaded.totals().dropped
            kernels.append(self._counters(step, len(kernels), sampled, arithmetic))
            if failure is not None:
                break
        crash = None if failure is None else (kernels[-1].kernel, failure)
        findings = describe(self._plan, self.loaded.findings(), self._artifact.path, self._lines, crash)
        seconds = time.monotonic() - started
        said = "" if failure is None else words_of(failure)
        return Trace(tuple(kernels), findings, failure is None, said, truncated, seconds)

    def _place(self, buffer: Buffer) -> RawPlace:
        mask = self._covered[buffer.name]
        start = None if mask is None else mask.ctypes.data
        address = self._memory[buffer.name].address
        return RawPlace(address, buffer.nbytes, MARGIN, start, DTYPES[buffer.dtype].size, buffer.role == "input")

    def _set_written(self, name: str) -> None:
        self.loaded.set_written([buffer.name for buffer in self._plan.buffers].index(name))

    def _launch(self, step: Launch, sampled: Sequence[int], threads: int) -> Failure | None:
        self.loaded.sample(sampled)
        addresses = {name: memory.address for name, memory in self._memory.items()}
        arguments = pack_arguments(step.args, addresses, encode_tensor_map)
        return self.loaded.launch(step, arguments, threads)

    def _counters(self, step: Launch, index: int, sampled: tuple[int, ...], arithmetic: bool) -> KernelTrace:
        stats, totals = self.loaded.stats(), self.loaded.totals()
        recorded = totals.logged / (totals.logged + totals.dropped) if totals.logged else 1.0
        made = totals.full * recorded
        scale = (totals.full + totals.light) / made if made else step.blocks / len(sampled)
        every = totals.full + totals.light
        first = step.blocks * totals.first / every if every else 1.0
        entered = self.loaded.entered()
        executed = Counter({int(at): int(entered[at]) for at in np.flatnonzero(entered)})
        computed = count_arithmetic(self._artifact.path, self._lines, executed) if arithmetic else ()
        return KernelTrace(
            step.kernel,
            index,
            step.blocks,
            step.threads,
            sampled,
            scale,
            self._line_counters(stats),
            computed,
            first,
        )

    def _line_counters(self, stats: NDArray[Any]) -> tuple[LineCounters, ...]:
        self._lines.resolve(call_site(int(pc)) for pc in stats["pc"])
        groups: dict[tuple[Place, int, int], list[int]] = {}
        for i, stat in enumerate(stats):
            place = self._lines.place(call_site(int(stat["pc"])))
            groups.setdefault((place, int(stat["operation"]), int(stat["bytes"])), []).append(i)
        rows = [_line(key, stats[members]) for key, members in groups.items()]
        return tuple(sorted(rows, key=lambda row: (row.place.line, row.place.inner, row.operation)))


def _line(key: tuple[Place, int, int], stats: NDArray[Any]) -> LineCounters:
    place, operation, nbytes = key
    names = ("requests", "lanes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
    sums = {name: int(stats[name].sum()) for name in names}
    return LineCounters(place, _OPERATIONS[operation], nbytes, worst=int(stats["worst"].max()), **sums)


def _filled(buffer: Buffer, image: NDArray[Any] | None) -> TracedMemory:
    memory = TracedMemory(buffer.nbytes)
    if image is not None:
        if image.dtype != numpy_dtype(buffer.dtype) or image.size > buffer.elements:
            raise LaunchError(f"buffer {buffer.name} holds {buffer.elements} {buffer.dtype}, got {image.shape}")
        memory.array(image.dtype)[: image.size] = image.reshape(-1)
    return memory


def _covered(buffer: Buffer, tensors: Sequence[TensorSpec]) -> NDArray[np.bool_] | None:
    members = tuple(tensor for tensor in tensors if tensor.storage == buffer.name)
    if not members:
        return None
    mask = covered(buffer.elements, members)
    return None if mask.all() else mask
