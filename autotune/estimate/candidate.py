"""An estimate of one candidate, from its template on: compile for the GPU, count on the emulator, predict."""

from autotune.build.cache import BuildCache
from autotune.build.nvcc import CubinRequest
from autotune.check.ops import resolve
from autotune.check.process import TracingProcess
from autotune.check.task import TraceTask
from autotune.errors import LaunchError
from autotune.estimate.counting import count
from autotune.estimate.model import Estimate, predict
from autotune.estimate.occupancy import kernel_resources, static_failure
from autotune.render import render
from autotune.template import load_template


def estimate_candidate(task: TraceTask, cache: BuildCache | None = None) -> Estimate:
    """Estimated time of a candidate for `task.problem` on `task.spec`, with its parts and what binds it. Takes seconds.

    Raises:
        CompileError: a compiler refuses the source.
        BuildError: there is no compiler.
        LaunchError: the GPU would refuse a launch, or a traced run failed.
    """
    cache = cache or BuildCache()
    source = render(load_template(task.template), task.problem, dict(task.config), task.spec)
    artifact = CubinRequest(source, task.spec.arch).build(cache)
    failure = static_failure(source.plan, artifact, task.spec)
    if failure is not None:
        raise LaunchError(f"{source.candidate.key}: {failure}")
    with TracingProcess() as process:
        counts = count(process.trace, task, resolve(task.op), source.plan)
    return predict(source.plan, kernel_resources(source.plan, artifact, task.spec), counts, task.spec)
