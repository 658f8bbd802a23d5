"""Tracing one candidate from its template on: render, build, run. What the checking process does."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.twin import Placement, make_twin
from autotune.emulator.building import build_emulator
from autotune.families.op_ref import OpRef
from autotune.families.reduced import executable
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import Template, load_template
from autotune.families.template_lines import CompilesAs, TemplateLines, template_lines
from autotune.families.unreferenced import resolve
from autotune.gpus.spec import DeviceSpec
from autotune.ops.expected import make_inputs, storage_images
from autotune.ops.op import Op
from autotune.trace.observed import Finding, Place, Trace
from autotune.trace.tracing import SAMPLED_BLOCKS, trace_plan


@dataclass(frozen=True)
class TraceTask:
    """A candidate to trace, as another process can be told. `problem` is executed as it is: see `Op.emulated`.

    `hard`: with the op's hard inputs, which lead into code that ordinary values do not reach. `placement`: of tensors,
    where they are not to lie as the problem says.
    """

    op: OpRef
    template: Path
    problem: Problem
    config: tuple[tuple[str, Value], ...]
    spec: DeviceSpec
    blocks: int | None = SAMPLED_BLOCKS
    threads: int = 2
    seed: int = 1
    hard: bool = False
    placement: Placement | None = None

    def with_config(self, config: dict[str, Value], blocks: int | None) -> "TraceTask":
        """The same with another configuration."""
        return replace(self, config=tuple(config.items()), blocks=blocks)


@dataclass(frozen=True)
class Traced:
    """A trace and the source that its lines refer to."""

    source: KernelSource
    trace: Trace


def run_task(task: TraceTask, cache: BuildCache | None = None) -> Traced:
    """Render, build and trace a candidate.

    Raises:
        TemplateError: the template does not render.
        CompileError: the compiler refuses the source.
        BuildError: there is no compiler.
        LaunchError: the run could not even begin.
    """
    op = resolve(task.op)
    template = _template(task.template)
    config = executable(template, task.problem, dict(task.config), task.spec)
    source = render(template, task.problem, config, task.spec)
    builds = cache or BuildCache()
    with CompilesAs(template, source, task.spec):
        artifact = build_emulator(source, builds, traced=True, arch=task.spec.arch)
    tensors, plan = op.tensors(task.problem), source.plan
    twin = task.placement and make_twin(plan, tensors, task.placement)
    if twin:
        tensors, plan = twin.tensors, twin.plan
    images = storage_images(tensors, _inputs(op, task.problem, task.seed, task.hard))
    trace = trace_plan(artifact, plan, images, tensors, blocks=task.blocks, threads=task.threads)
    builds.give_back(artifact)
    if trace.findings:
        lines = template_lines(template, source, task.spec)
        trace = replace(trace, findings=tuple(_in_template(finding, lines) for finding in trace.findings))
    return Traced(source, trace)


def _in_template(finding: Finding, lines: TemplateLines) -> Finding:
    """A finding that speaks of the template's lines."""
    other = finding.other and replace(finding.other, place=_place(finding.other.place, lines))
    detail = lines.translated(finding.detail)
    return replace(finding, place=_place(finding.place, lines), other=other, detail=detail)


def _place(place: Place, lines: TemplateLines) -> Place:
    line = lines(place.line)
    return replace(place, origin=f"{lines.name}:{line}") if line else place


@lru_cache(maxsize=16)
def _template(path: Path) -> Template:
    return load_template(path)


@lru_cache(maxsize=2)
def _inputs(op: Op, problem: Problem, seed: int, hard: bool) -> dict[str, NDArray[Any]]:
    return make_inputs(op, problem, seed, hard=hard)
