"""What head sizes cost that are no tile's width: beside the next width, by each family on tensor cores and by look-ups.

    python -m benchmarks.head_sizes                every size of SIZES, forward and backward
    python -m benchmarks.head_sizes 72 75          these sizes

A line a problem and family: its time at HS, at the next multiple of 32 with the same B, NH and T, and the first over
the second. Each is what a look-up without a database answers. Exit code 1: one is above 1.15. Needs a GPU and torch.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.answers.best import Best
from autotune.answers.lookup import best
from autotune.core.problem import Problem
from autotune.families.template import builtin_templates
from autotune.gpus.present import present_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from benchmarks.cliffs import Timer, gpu_timer

SIZES = (24, 36, 40, 50, 72, 75, 80, 100, 112, 136, 200, 248)
MOST = 1.15
_NOWHERE = "/nowhere/none.db"


def problems(sizes: Sequence[int]) -> Iterator[Problem]:
    """Two shapes of real models in 16 bits, one in fp32."""
    for op in ("forward", "backward"):
        for HS in sizes:
            yield get_op(op).problem(B=2, NH=32, T=2048, HS=HS, dtype="fp16")
            yield get_op(op).problem(B=16, NH=16, T=729, HS=HS, dtype="bf16", causal=False)
            yield get_op(op).problem(B=2, NH=16, T=1024, HS=HS, dtype="fp32")


def next_width(problem: Problem) -> Problem:
    """The problem with the head size that its tiles have."""
    return problem.replace(HS=-(-problem.integer("HS") // 32) * 32)


def families(problem: Problem, spec: DeviceSpec) -> Iterator[str | None]:
    """None for a look-up among all, then each family on tensor cores that takes the problem."""
    yield None
    for family in builtin_templates(problem.op):
        if family.front.tensor_cores and family.why_unsupported(problem, spec) is None:
            yield family.name


def ratio(problem: Problem, family: str | None, spec: DeviceSpec, timer: Timer) -> tuple[str, float, float]:
    """Who answers, and its time at the problem's size and at the next width."""
    here, there = (_asked(each, family, spec) for each in (problem, next_width(problem)))
    return here.candidate.template, timer(here) or math.nan, timer(there) or math.nan


def _asked(problem: Problem, family: str | None, spec: DeviceSpec) -> Best:
    fields: dict[str, Any] = problem.fields
    return best(problem.op, db=_NOWHERE, device=spec, template=family, **fields)


def main() -> int:
    """Measure, print a line each; 1 where one is above `MOST`."""
    spec = present_gpu()
    if spec is None:
        print("this needs a GPU")
        return 2
    timer, worst = gpu_timer(), 0.0
    for problem in problems([int(size) for size in sys.argv[1:]] or SIZES):
        for family in families(problem, spec):
            name, here, there = ratio(problem, family, spec, timer)
            worst = max(worst, here / there)
            who = f"look-up: {name}" if family is None else name
            print(f"{problem}  {who:<28} {here:8.4f} ms  {there:8.4f} ms  {here / there:5.2f}", flush=True)
    print(f"worst: {worst:.2f}, at most {MOST} is wanted")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
