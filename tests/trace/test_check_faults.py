"""Planted faults, one a kernel: each is found, named by its kind, and at its own line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.core.plan import TensorSpec
from autotune.trace.observed import Finding, FindingKind
from tests.trace.tracing import line_of, trace

CODE = Path(__file__).with_name("faulty.cu").read_text()


@dataclass(frozen=True)
class Fault:
    """A kernel of faulty.cu and what must be said of it. `n` is its last argument, `x` and `y` sizes of its arrays."""

    kernel: str
    kind: FindingKind
    space: str = ""
    offset: int | None = None
    thread: int | None = None
    access: str | None = None
    n: int = 64
    x: int = 256
    y: int = 256
    also: tuple[FindingKind, ...] = ()  # what else is true of the kernel
    launch: dict[str, Any] = field(default_factory=dict)


def _block(threads: int, blocks: int = 1, **more: Any) -> dict[str, Any]:
    return {"block": (threads, 1, 1), "grid": (blocks, 1, 1), **more}


OUT: FindingKind = "out of bounds"
RACE: FindingKind = "shared memory race"
GLOBAL: FindingKind = "global memory race"
BLOCKS: FindingKind = "race between blocks"
UNWRITTEN: FindingKind = "read of what nobody wrote"
COPY: FindingKind = "asynchronous copy not waited for"
MASK: FindingKind = "wrong warp mask"
DYNAMIC, TILE = "dynamic shared memory", "shared tile"

FAULTS = (
    Fault("read_past_end", OUT, "x", 256, 31, "read", x=64, launch=_block(32, 2)),
    Fault("write_past_end", OUT, "y", 256, 0, "write", y=64, launch=_block(32, 3)),
    Fault("read_before_start", OUT, "x", -4, 0, "read", launch=_block(32)),
    Fault("read_far_away", OUT, "x", 4000, 1, "read", launch=_block(32)),
    Fault("atomic_past_end", OUT, "y", 256, 16, "write", y=64, also=(UNWRITTEN,), launch=_block(32)),
    Fault("vector_past_end", OUT, "x", 240, 15, "read", x=62, n=62, launch=_block(32)),
    Fault("between_tensors", "outside of every tensor", "x", 80, 20, "read", launch=_block(32)),
    Fault("writes_input", "input written", "x", 0, 0, "write", launch=_block(32)),
    Fault("shared_past_end", OUT, DYNAMIC, 256, 63, "read", launch=_block(64, smem=256)),
    Fault("shared_before_start", OUT, DYNAMIC, -4, 0, "write", launch=_block(32, smem=128)),
    Fault("static_index", "index out of bounds", "", 32, 31, n=63, launch=_block(32)),
    Fault("local_index", "index out of bounds", "", 4, 4, launch=_block(32)),
    Fault("misaligned_load", "misaligned", "x", 4, 1, "read", launch=_block(32)),
    Fault("misaligned_store", "misaligned", "y", 12, 1, "write", launch=_block(32)),
    Fault("misaligned_shared", "misaligned", DYNAMIC, 24, 1, "write", launch=_block(32, smem=1024)),
    Fault("misaligned_copy", "misaligned", "x", 8, 1, "read", launch=_block(32, smem=1024)),
    Fault("no_barrier", RACE, DYNAMIC, access="read", launch=_block(64, smem=256)),
    Fault("no_second_barrier", RACE, TILE, access="write", launch=_block(64)),
    Fault("warp_without_sync", RACE, TILE, launch=_block(32)),
    Fault("shuffle_is_no_fence", RACE, TILE, access="read", launch=_block(32)),
    Fault("same_word", RACE, "shared found", access="write", launch=_block(64)),
    Fault("half_barrier", RACE, TILE, access="read", launch=_block(64)),
    Fault("global_race", GLOBAL, "y", access="read", launch=_block(64)),
    Fault("global_write_race", GLOBAL, "y", 0, 1, "write", launch=_block(64)),
    Fault("accumulates", BLOCKS, "y", launch=_block(32, 2)),
    Fault("reads_other_block", BLOCKS, "y", launch=_block(32, 4)),
    Fault("overlapping_tiles", BLOCKS, "y", access="write", launch=_block(32, 4)),
    Fault("mixed_atomic", BLOCKS, "y", access="write", launch=_block(32, 2)),
    Fault("two_barriers", "divergent barrier", thread=32, launch=_block(64)),
    Fault("part_of_warp_left", "divergent barrier", n=40, launch=_block(64)),
    Fault("barrier_or_warp", MASK, launch=_block(32)),
    Fault("named_barrier_short", "deadlock", thread=0, launch=_block(64)),
    Fault("lane_not_in_mask", MASK, thread=16, launch=_block(32)),
    Fault("lane_never_arrives", MASK, thread=0, launch=_block(32)),
    Fault("lane_has_left", MASK, thread=0, launch=_block(32)),
    Fault("two_operations", MASK, thread=16, launch=_block(32)),
    Fault("shared_unwritten", UNWRITTEN, TILE, access="read", n=40, launch=_block(64)),
    Fault("output_unwritten", UNWRITTEN, "y", 0, 0, "read", launch=_block(32)),
    Fault("halves_unwritten", UNWRITTEN, "shared pairs", access="read", launch=_block(32)),
    Fault("atomic_unwritten", UNWRITTEN, "shared count", launch=_block(32)),
    Fault("copy_not_waited_for", COPY, DYNAMIC, access="read", launch=_block(32, smem=512)),
    Fault("copy_of_wrong_group", COPY, DYNAMIC, access="read", launch=_block(32, smem=1024)),
    Fault("copy_without_barrier", RACE, DYNAMIC, access="read", launch=_block(32, smem=512)),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kernel)
def test_found_at_its_line(fault: Fault) -> None:
    tensors = (TensorSpec("x", (20,), (1,), "fp32", "input", "x"),) if fault.kernel == "between_tensors" else ()
    x, y = np.ones(fault.x, np.float32), np.ones(fault.y, np.float32)
    traced = trace(CODE, fault.kernel, {"x": x}, {"y": y}, fault.n, tensors=tensors, **fault.launch)
    line = line_of(CODE, fault.kernel)
    found = [f for f in traced.findings if f.kind == fault.kind and line in _accesses(f)]
    assert found, f"expected {fault.kind} at line {line}, got {list(map(str, traced.findings))}"
    _agrees(found[0], fault, _accesses(found[0])[line])
    others = [f for f in traced.findings if f.kind not in {fault.kind, *fault.also}]
    assert not others, list(map(str, others))


def _accesses(found: Finding) -> dict[int, str]:
    """Accesses by line. A race has two; which of them is told first depends on the order in which threads ran."""
    others = {found.other.place.line: str(found.other.access)} if found.other and "race" in found.kind else {}
    return {**others, found.line: found.access}


def _agrees(found: Finding, fault: Fault, access: str) -> None:
    assert found.kernel == fault.kernel
    assert found.place.inner == "" or ":" in found.place.inner
    assert fault.space in {"", found.space}
    for name, expected, got in (
        ("offset", fault.offset, found.offset),
        ("thread", fault.thread, found.thread[0]),
        ("access", fault.access, access),
    ):
        assert expected is None or expected == got, f"{name}: {found}"


def test_there_are_enough_faults_of_every_kind() -> None:
    assert len(FAULTS) >= 25
    assert {fault.kind for fault in FAULTS} >= {
        OUT, RACE, GLOBAL, BLOCKS, UNWRITTEN, COPY, MASK, "misaligned", "divergent barrier", "deadlock",
    }  # fmt: skip
