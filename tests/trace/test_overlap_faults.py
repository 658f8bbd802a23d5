"""What a kernel touches too early that overlaps those before it: planted mistakes are found, and nothing else."""

from typing import Any

import numpy as np
import pytest

from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg
from autotune.trace.tracing import trace_plan
from tests.trace.tracing import build

KIND = "kernel before not waited for"
CODE = """
#include "common/ptx/dependent_launch.cuh"
extern "C" __global__ void first(int* a, int* b, int* c) { a[threadIdx.x] = 1; }
extern "C" __global__ void waits(int* a, int* b, int* c)
{
    wait_for_previous_kernel();
    b[threadIdx.x] = a[threadIdx.x];
}
extern "C" __global__ void reads(int* a, int* b, int* c) { b[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void writes(int* a, int* b, int* c) { a[threadIdx.x] = 2; }
extern "C" __global__ void late(int* a, int* b, int* c)
{
    b[threadIdx.x] = a[threadIdx.x];
    wait_for_previous_kernel();
}
extern "C" __global__ void one_waits(int* a, int* b, int* c)
{
    if (threadIdx.x == 32) wait_for_previous_kernel();
    b[threadIdx.x] = a[threadIdx.x];
}
extern "C" __global__ void all_meet(int* a, int* b, int* c)
{
    if (threadIdx.x == 32) wait_for_previous_kernel();
    __syncthreads();
    b[threadIdx.x] = a[threadIdx.x];
}
extern "C" __global__ void idle(int* a, int* b, int* c) {}
extern "C" __global__ void waits_at_the_end(int* a, int* b, int* c) { wait_for_previous_kernel(); }
extern "C" __global__ void lets_then_waits(int* a, int* b, int* c)
{
    let_next_kernel_begin();
    wait_for_previous_kernel();
}
extern "C" __global__ void waits_then_lets(int* a, int* b, int* c)
{
    wait_for_previous_kernel();
    let_next_kernel_begin();
}
"""


def findings(*kernels: str, overlaps: bool = True, blocks: int | None = None) -> list[tuple[str, str, str]]:
    """Kernel, access and buffer of each, the kernels in this order, each overlapping the one before."""
    buffers = tuple(Buffer(name, "int32", 64, "output") for name in "abc")
    args = tuple(PointerArg(b.name, b.name, 0, "int32", "output") for b in buffers)
    steps = tuple(
        Launch(kernel, (2, 1, 1), (64, 1, 1), 0, args, overlaps=overlaps and number > 0)
        for number, kernel in enumerate(kernels)
    )
    images: dict[str, Any] = {name: np.zeros(64, np.int32) for name in "abc"}
    trace = trace_plan(build(CODE), LaunchPlan(buffers, steps), images, blocks=blocks)
    return [(f.kernel, f.access, f.space) for f in trace.findings if f.kind == KIND]


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        (("first", "waits"), []),
        (("first", "reads"), [("reads", "read", "a")]),
        (("first", "late"), [("late", "read", "a")]),
        (("first", "writes"), [("writes", "write", "a")]),
        (("first", "one_waits"), [("one_waits", "read", "a")]),
        (("first", "all_meet"), []),
        # what the second one waits for has ended when the third has waited, or begins after that wait
        (("first", "idle", "waits"), [("waits", "read", "a")]),
        (("first", "waits_at_the_end", "waits"), []),
        (("first", "waits_at_the_end", "reads"), []),
        (("first", "waits_then_lets", "reads"), []),
        (("first", "lets_then_waits", "reads"), [("reads", "read", "a")]),
        (("first", "lets_then_waits", "waits"), []),
        (("first", "waits", "writes"), [("writes", "write", "a")]),  # the second one still reads
        (("first", "waits", "waits", "waits"), []),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_touched_too_early(kernels: tuple[str, ...], found: list[tuple[str, str, str]]) -> None:
    assert findings(*kernels) == found


def test_kernels_that_do_not_overlap_need_no_wait() -> None:
    assert findings("first", "reads", "writes", overlaps=False) == []


def test_blocks_that_are_not_traced_in_full() -> None:
    """There any wait of the block is enough; none is not."""
    assert findings("first", "reads", blocks=1) == [("reads", "read", "a")]
    assert findings("first", "all_meet", blocks=1) == []
