"""Rendered sources and launch plans as they were last reviewed: a change to a template shows as a change here.

`AUTOTUNE_UPDATE_GOLDEN=1 pytest tests/families/test_golden.py` writes them anew; read the difference before committing.
"""

import os
from pathlib import Path

import pytest

from autotune.core.plan import Launch, LaunchPlan
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op, op_names

GOLDEN = Path(__file__).parent.parent / "golden"
FAMILIES = [template for op in op_names() for template in builtin_templates(op)]


def _problem(template: Template) -> Problem:
    """The op's default problem, or the same in fp32 where the family takes no other dtype."""
    op = get_op(template.op)
    default = op.problem()
    return default if template.why_unsupported(default, gpu("h200")) is None else op.problem(dtype="fp32")


def _text(template: Template) -> str:
    problem = _problem(template)
    source = render(template, problem, Space(template, problem, gpu("h200")).default(), gpu("h200"))
    return source.code + "\n" + _plan(source.plan)


def _plan(plan: LaunchPlan) -> str:
    lines = [f"// buffer {b.name}: {b.elements} {b.dtype}, {b.role}" for b in plan.buffers]
    for step in plan.steps:
        if isinstance(step, Launch):
            args = ", ".join(arg.name for arg in step.args)
            lines.append(f"// launch {step.kernel} grid={step.grid} block={step.block} smem={step.smem} ({args})")
        else:
            lines.append(f"// zero {step.buffer}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("template", FAMILIES, ids=lambda t: f"{t.op}-{t.name}")
def test_the_default_of_every_family(template: Template) -> None:
    path = GOLDEN / f"{template.op}_{template.name}.cu"
    text = _text(template)
    if os.environ.get("AUTOTUNE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), f"no golden file for {template.op}/{template.name}; see this file's docstring"
    assert text == path.read_text()


def test_no_golden_file_without_a_family() -> None:
    assert {path.stem for path in GOLDEN.glob("*.cu")} == {f"{t.op}_{t.name}" for t in FAMILIES}
