"""Mistakes that a pipeline of TMA, mbarriers and wgmma can have, planted one by one in a right one: each is found.

Most give wrong numbers as well, as the emulator loads and multiplies as late as it may.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from autotune.core.plan import TensorMapArg
from autotune.trace.observed import FindingKind, Trace
from tests.kernels.common import pipelined
from tests.trace.tracing import line_of, trace

FENCE: FindingKind = "missing proxy fence"
COPY: FindingKind = "asynchronous copy not waited for"
OVER: FindingKind = "overwritten while being read"
RACE: FindingKind = "shared memory race"
DEADLOCK: FindingKind = "deadlock"
CRASH: FindingKind = "crash"
ROWS, DEPTH = 128, 448


@dataclass(frozen=True)
class Fault:
    """What is written in the place of a piece of the kernel; what is found then, and at which line or what is said."""

    before: str
    after: str
    kind: FindingKind
    at: str = ""  # the line's mark
    other: str = ""  # that of the other party
    says: str = ""


WAIT_FREE, WAIT_FULL = "mbarrier_wait(empty + 8 * stage, parity ^ 1);", "mbarrier_wait(full + 8 * stage, parity);"
EXPECT = "mbarrier_arrive_expect(full + 8 * stage, STAGE_BYTES);"
FREE = "if (step > 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * ((step - 1) % STAGES));"
MADE = "mbarrier_init(empty + 8 * stage, 2);"
READ = "if (threadIdx.x % 128 == 0) bulk_wait_read<0>();"

FAULTS = {
    "mbarriers not fenced": Fault("fence_mbarrier_init();", "", FENCE, at="load"),
    "mbarriers not shown": Fault("__syncthreads();", "", RACE, at="stage full"),
    "full stage not waited for": Fault(WAIT_FULL, "", COPY, at="product", other="load"),
    "wrong parity of a full stage": Fault(
        WAIT_FULL, "mbarrier_wait(full + 8 * stage, parity ^ 1);", COPY, at="product", other="load"
    ),
    "free stage not waited for": Fault(WAIT_FREE, "", CRASH, at="bytes", says="phase 0 has all of its 1 arrivals"),
    "wrong parity of a free stage": Fault("parity ^ 1", "parity", DEADLOCK, at="stage free", says="lacks 2 arrivals"),
    "freed before the product is waited for": Fault(
        FREE, "if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * stage);", OVER, at="load", other="product"
    ),
    "freed by one consumer of two": Fault(MADE, MADE.replace("2", "1"), OVER, at="load", other="product"),
    "never freed": Fault(FREE, "", DEADLOCK, at="stage free", says="lacks 2 arrivals"),
    "too many bytes expected": Fault(
        EXPECT, EXPECT.replace("S);", "S + 16);"), DEADLOCK, at="stage full", says="0 arrivals and 16 bytes"
    ),
    "too few bytes expected": Fault(EXPECT, EXPECT.replace("STAGE", "A"), COPY, at="product"),
    "fewer bytes expected than one copy brings": Fault(
        EXPECT, EXPECT.replace("STAGE_BYTES", "128"), DEADLOCK, at="stage full", says="-28544 bytes"
    ),
    "stores not fenced": Fault("fence_async_shared();", "", FENCE, at="store", other="out"),
    "stores not shown to the one that copies": Fault(
        f"fenced\n{12 * ' '}named_barrier<128>(1 + consumer);", "fenced\n", RACE, at="store", other="out"
    ),
    "overwritten before the store has read": Fault(
        f"{READ}\n{12 * ' '}named", "\nnamed", OVER, at="out", other="store"
    ),
    "ends before the store has read": Fault(f"{READ}\n    }}\n}}", "}}", CRASH, says="bulk_wait_read<0>"),
    "accumulators touched under way": Fault("wgmma_fence();", "wgmma_fence(sum);", CRASH, says="still under way"),
    "accumulators written under way": Fault(
        "wgmma_wait<0>(sum);", "sum[0] = 0.0f; wgmma_wait<0>(sum);", CRASH, says="were written while"
    ),
    "last product not waited for": Fault("wgmma_wait<0>(sum);", "", CRASH, says="wgmma was under way"),
}


def traced(code: str) -> Trace:
    given = pipelined.operands(ROWS, DEPTH)
    c = given.pop("c")
    maps = pipelined.maps(ROWS, DEPTH)
    return trace(code, "test", given, {"c": c}, block=(pipelined.THREADS, 1, 1), smem=pipelined.SMEM, maps=maps)


def test_a_right_pipeline_raises_no_alarm() -> None:
    result = traced(pipelined.CODE)
    assert result.complete
    assert not result.findings


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    assert pipelined.CODE.count(fault.before) == 1
    result = traced(pipelined.CODE.replace(fault.before, fault.after))
    found = [finding for finding in result.findings if finding.kind == fault.kind]
    assert found, [(f.kind, f.detail) for f in result.findings]
    if fault.at:
        assert line_of(pipelined.CODE, fault.at) in {f.place.line for f in found}
    if fault.other:
        assert line_of(pipelined.CODE, fault.other) in {f.other.place.line for f in found if f.other}
    assert any(fault.says in f.detail for f in found)


EDGE = """
#include "common/ptx/fences.cuh"
#include "common/ptx/tensor_copy.cuh"
extern "C" __global__ void test(float*, const __grid_constant__ TensorMap map)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    for (int i = threadIdx.x; i < 4 * 20; i += 32) reinterpret_cast<float*>(memory)[i / 20 * 32 + i % 20] = i;
    fence_async_shared();
    __syncwarp();
    if (threadIdx.x == 0) {
        tensor_store(map, {0, FIRST}, shared_address(memory));  // store
        bulk_commit();
        bulk_wait_read<0>();
    }
}
"""


@pytest.mark.parametrize(("columns", "first", "found"), [(20, 0, False), (24, 0, True), (20, 6, False), (20, 7, False)])
def test_what_lies_out_of_the_tensor_need_not_be_written(columns: int, first: int, found: bool) -> None:
    described = TensorMapArg("y", "y", 0, "fp32", (columns, 8), (1, columns), (32, 4), 0, "output")
    y = np.zeros((8, columns), np.float32)
    result = trace(EDGE.replace("FIRST", str(first)), "test", {}, {"y": y}, smem=512, maps=[described])
    assert result.complete
    assert {f.kind for f in result.findings} == ({"read of what nobody wrote"} if found else set())
