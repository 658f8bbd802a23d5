"""Every attention family takes more batches and more heads than y and z of a grid have places."""

import pytest

from autotune.families.limits import MAX_GRID
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

H200 = gpu("h200")
FAMILIES = [template for op in ("forward", "backward") for template in builtin_templates(op)]


@pytest.mark.parametrize("many", ["B", "NH"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: f"{family.op}-{family.name}")
def test_there_is_a_grid_for_many(family: Template, many: str) -> None:
    op = get_op(family.op)
    fields = {"B": 2, "NH": 2, "NH_kv": 1, "T": 128, "HS": 64, many: 70000}
    problems = (op.problem(**fields, dtype=dtype) for dtype in ("fp16", "fp32"))
    problem = next(p for p in problems if family.why_unsupported(p, H200) is None)
    plan = render(family, problem, Space(family, problem, H200).default(), H200).plan
    for launch in plan.launches:
        assert all(size <= most for size, most in zip(launch.grid, MAX_GRID, strict=True))
