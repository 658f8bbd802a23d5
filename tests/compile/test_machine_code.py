"""Machine code that nvcc makes for every architecture, read and followed; on `matmul`, whose loops are known."""

from collections import defaultdict

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, CubinRequest
from autotune.estimate.controlflow import blocks_of, live_blocks, loops_of
from autotune.estimate.counts import Counts
from autotune.estimate.flow import flow_of
from autotune.estimate.occupancy import kernel_resources
from autotune.estimate.sass import read_code
from autotune.estimate.schedule import schedules_of
from autotune.families.render import render
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.every_family import GPU_OF

WARPS = 1000.0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_products_are_found_in_loops(arch: str, cache: BuildCache) -> None:
    spec, family = gpu(GPU_OF[arch]), find_template("matmul", "mma")
    source = render(family, get_op("matmul").problem(dtype="fp16"), dict(family.front.defaults), spec)
    built = CubinRequest(source, spec.arch).build(cache)
    ((kernel, code),) = read_code(built.path, spec.compute_capability).items()
    blocks = blocks_of(code)
    live = live_blocks(blocks, ())
    products = {i: sum(x.amount for x in code[blocks[i].begin : blocks[i].end] if x.kind == "tensor") for i in live}
    looped = {i for loop in loops_of(blocks, live) for i in loop.blocks}
    assert sum(products.values()) > 0
    assert {i for i in live if products[i]} <= looped
    assert sum(blocks[i].ends for i in live) >= 1

    done: dict[str, float] = defaultdict(float)  # as if the loop were gone through ten times, all else once
    for i in live:
        for x in code[blocks[i].begin : blocks[i].end]:
            done[x.kind] += x.amount * (10.0 if products[i] else 1.0) * WARPS
    counts = Counts(
        kernel, tensor=done["tensor"], barriers=done["barrier"], shared_loads=done["shared load"],
        shared_stores=done["shared store"], global_loads=done["global load"], async_copies=done["async copy"],
        global_stores=done["global store"], sectors_loaded=1e6, sectors_stored=1e5,
    )  # fmt: skip
    flow = flow_of(code, counts, WARPS)
    found = sum(times * products.get(i, 0.0) for i, times in enumerate(flow.executions))
    assert found == pytest.approx(done["tensor"] / WARPS, rel=0.2)  # the other counts are not quite possible

    resources = kernel_resources(source.plan, built, spec)
    (schedule,) = schedules_of(built.path, source.plan, resources, (counts,), spec)
    assert schedule.instructions > found
    assert any(phase.loop and phase.rounds > 1 for phase in schedule.phases)
    assert schedule.clocks(1) <= schedule.clocks(schedule.resident)
