"""An estimate of one candidate, from its template on: compile for the GPU, count on the emulator, predict."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.core.errors import LaunchError
from autotune.core.measurement import KernelResources
from autotune.estimate.counting import Tracer, count
from autotune.estimate.model import Estimate, predict
from autotune.estimate.occupancy import Occupancy, kernel_resources, occupancy, static_failure
from autotune.estimate.schedule import schedules_of
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import load_template
from autotune.families.unreferenced import resolve
from autotune.gpus.spec import DeviceSpec
from autotune.trace.remote import TracingProcess
from autotune.trace.task import TraceTask


@dataclass(frozen=True)
class Estimated:
    """A modelled time on a GPU and what it rests on: resources and occupancy of each distinct launch, in order."""

    spec: DeviceSpec
    estimate: Estimate
    resources: tuple[KernelResources, ...]
    occupancies: tuple[Occupancy, ...]

    def to_json(self) -> dict[str, Any]:
        kernels = [
            {**asdict(resources), "blocks_per_sm": found.blocks_per_sm, "limited_by": found.limiter}
            for resources, found in zip(self.resources, self.occupancies, strict=True)
        ]
        launches = [{**asdict(launch), "waiting": launch.waiting} for launch in self.estimate.launches]
        return {
            **self.estimate.to_json(), "launches": launches, "title": self.spec.title,
            "method": self.estimate.timing.method, "kernels": kernels,
        }  # fmt: skip


def rendered(task: TraceTask) -> KernelSource:
    """The source for `task.problem`, the whole of it."""
    return render(load_template(task.template), task.problem, dict(task.config), task.spec)


def examine(task: TraceTask, source: KernelSource, build: Callable[[], Artifact], tracer: Tracer) -> Estimated:
    """Occupancy and estimated time of a candidate for `task.problem` on `task.spec`.

    Args:
        task: the candidate and the whole problem.
        source: `rendered(task)`.
        build: gives the cubin of `source`.
        tracer: counts.

    Raises:
        CompileError: a compiler refuses the source.
        BuildError: there is no compiler, or its code cannot be read.
        LaunchError: the GPU would refuse a launch, or a traced run failed.
    """
    artifact = build()
    failure = static_failure(source.plan, artifact, task.spec)
    if failure is not None:
        raise LaunchError(f"{source.candidate.key}: {failure}")
    counts = count(tracer, task, resolve(task.op), source.plan)
    resources = kernel_resources(source.plan, artifact, task.spec)
    occupancies = tuple(
        occupancy(found.registers, found.static_smem + found.dynamic_smem, found.threads, task.spec)
        for found in resources
    )
    schedules = schedules_of(artifact.path, source.plan, resources, counts, task.spec)
    estimate = predict(source.plan, resources, counts, schedules, task.spec)
    return Estimated(task.spec, estimate, resources, occupancies)


def examine_alone(task: TraceTask, tracer: Tracer, cache: BuildCache | None = None) -> Estimated:
    """`examine` with rendering and building. Takes seconds.

    Raises:
        TemplateError: the template does not render.
        CompileError, BuildError, LaunchError: as `examine`.
    """
    source = rendered(task)
    return examine(task, source, lambda: CubinRequest(source, task.spec.arch).build(cache or BuildCache()), tracer)


def estimate_candidate(task: TraceTask, cache: BuildCache | None = None) -> Estimate:
    """Estimated time of a candidate for `task.problem` on `task.spec`, with its parts and what binds it. Takes seconds.

    Raises:
        CompileError: a compiler refuses the source.
        BuildError: there is no compiler.
        LaunchError: the GPU would refuse a launch, or a traced run failed.
    """
    with TracingProcess() as process:
        return examine_alone(task, process.trace, cache).estimate
