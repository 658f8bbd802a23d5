"""Counts of short runs, scaled up, against counts of the problem itself."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.core.plan import LaunchPlan
from autotune.estimate.counting import count, short_length
from autotune.estimate.counts import ADDITIVE, Counts, counts_of
from autotune.estimate.model import METHOD
from autotune.estimate.occupancy import kernel_resources
from autotune.families.op_ref import OpRef
from autotune.families.render import render
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.op import Op
from autotune.trace.task import TraceTask, run_task
from autotune.tuning.counter import Counter, EstimateRequest

H200 = gpu("h200")


def task(op: str, family: str, **fields: Any) -> TraceTask:
    ref, template = OpRef(op), find_template(op, family)
    problem = ref.resolve().problem(**{"HS": 32, "dtype": "fp16", **fields})
    return TraceTask(ref, template.path, problem, tuple(dict(template.front.defaults).items()), H200, blocks=None)


def counted(of: TraceTask) -> tuple[Counts, ...]:
    op = of.op.resolve()
    template = find_template(op.name, of.template.name.removesuffix(".cu.j2"))
    plan = render(template, of.problem, dict(of.config), H200).plan
    return count(run_task, of, op, plan)


def traced(of: TraceTask) -> Sequence[Counts]:
    return [counts_of(kernel) for kernel in run_task(of).trace.kernels]


@pytest.mark.parametrize("family", ["flash_simt", "flash_mma", "unfused"])
def test_short_runs_scale_to_the_whole_problem(family: str) -> None:
    whole = task("forward", family, B=1, NH=2, T=512)
    assert short_length(whole.op.resolve(), whole) == 128
    for found, expected in zip(counted(whole), traced(whole), strict=True):
        for name in ADDITIVE:
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=0.01), (found.kernel, name)


def test_the_last_queries_start_first_and_have_the_most_work() -> None:
    (found,) = counted(task("forward", "flash_simt", B=1, NH=2, T=512))
    assert found.axis == 1
    assert 1.5 < found.first < 1.9  # blocks of 64: 8 tiles of 1 to 8 keys, (8 + c) / (4.5 + c)


def test_grouped_heads_and_no_mask() -> None:
    whole = task("forward", "flash_simt", B=1, NH=4, NH_kv=2, T=512, causal=False)
    (found,), (expected,) = counted(whole), traced(whole)
    assert found.first == 1.0
    assert found.fp32 == pytest.approx(expected.fp32, rel=0.01)
    assert found.sectors_loaded == pytest.approx(expected.sectors_loaded, rel=0.01)


def test_other_problems_are_counted_in_sampled_blocks_of_what_is_executed() -> None:
    decode = task("forward", "flash_simt", B=8, NH=4, T=1, T_kv=256)
    assert short_length(decode.op.resolve(), decode) is None
    (found,), (expected,) = counted(decode), traced(decode)
    assert found.fp32 == pytest.approx(expected.fp32, rel=0.02)
    assert found.sectors_loaded == pytest.approx(expected.sectors_loaded, rel=0.02)


def test_the_build_made_ahead_is_the_one_that_is_traced(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)

    class Here:
        def count(self, task: TraceTask, op: Op, whole: LaunchPlan) -> tuple[Counts, ...]:
            return count(partial(run_task, cache=cache), task, op, whole)

    of = task("forward", "warp_per_query", B=1, NH=1, T=512)
    source = render(find_template("forward", "warp_per_query"), of.problem, dict(of.config), H200)
    cubin = CubinRequest(source, H200.arch).build(cache)
    resources = kernel_resources(source.plan, cubin, H200)
    request = EstimateRequest(cast(Counter, Here()), of, of.op.resolve(), source.plan, cubin.path, resources)
    assert request.build(cache).timing.method == METHOD
    assert len(list(tmp_path.glob("emulator/*/*/kernel.so"))) == 1
