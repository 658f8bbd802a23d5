"""`autotune.check(...)`: what is wrong or slow in a kernel, with no GPU."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.checker.hints import Hint, find_hints
from autotune.checker.target import Target, find_target
from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.core.arguments import require_flags, require_positive, require_values, require_whole
from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError, BuildError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template_lines import CompilesAs, TemplateLines, template_lines
from autotune.families.unreferenced import resolve
from autotune.families.user_functions import Function, Named, named
from autotune.trace.observed import Finding, Trace
from autotune.trace.remote import LIMIT_S, TracingProcess
from autotune.trace.task import TraceTask
from autotune.trace.tracing import SAMPLED_BLOCKS

if TYPE_CHECKING:
    from autotune.estimate.examine import Estimated

MOST_RERUNS = 8
"""Changed configurations that are run to confirm hints."""


@dataclass(frozen=True)
class Checked:
    """What a traced run of one candidate showed.

    `problem` is the one that was executed in place of the one asked for; `error`: why there was no run, if so.
    `compulsory_bytes`: every input read once and every output written once. `estimated`: the modelled time of the
    problem asked for on the device, where that was wanted; `no_estimate`: why there is none. `lines`: of the
    template, for those of `source`.
    """

    candidate: Candidate
    asked: Problem
    problem: Problem
    device: str
    trace: Trace
    hints: tuple[Hint, ...]
    compulsory_bytes: float
    source: KernelSource | None = None
    lines: TemplateLines = field(default_factory=TemplateLines)
    error: str = ""
    estimated: "Estimated | None" = None
    no_estimate: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.trace.findings

    @property
    def ok(self) -> bool:
        """Nothing was found, and the run went to its end."""
        return not self.error and not self.findings and self.trace.complete

    def to_json(self) -> dict[str, Any]:
        return {
            "template": self.candidate.template,
            "config": self.candidate.config,
            "asked": self.asked.to_json(),
            "problem": self.problem.to_json(),
            "device": self.device,
            "ok": self.ok,
            "error": self.error,
            "compulsory_bytes": self.compulsory_bytes,
            "hints": [hint.to_json() for hint in self.hints],
            "estimate": None if self.estimated is None else self.estimated.to_json(),
            "no_estimate": self.no_estimate,
            **self.trace.to_json(),
        }


def check(  # noqa: PLR0913 - one keyword an option
    op: str | None = None,
    *,
    template: str | Path | None = None,
    params: Mapping[str, Value] | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    device: str | None = None,
    db: str | Path | None = None,
    blocks: int | None = SAMPLED_BLOCKS,
    hints: bool = True,
    estimate: bool = True,
    limit_s: float = LIMIT_S,
    **fields: Value,
) -> Checked:
    """Run one candidate on the emulator with every memory access traced.

    Args:
        op: `forward` (the default), `backward`, … or the op of `template`.
        template: a shipped family by name, or a file of one's own (`.cu.j2`); by default the best family known.
        params: parameter values that differ from the best configuration known (or the family's default).
        reference: a function, or `module:function`; not needed here, since results are not compared.
        inputs: the function that makes inputs, likewise; by default the template's, else they are random.
        device: the GPU whose limits hold, by name; by default as in `autotune.best`.
        db: the database that knows winners.
        blocks: of each launch that are traced in full; None: all of them.
        hints: rerun changed configurations (at most 8) where the counters show something to gain.
        estimate: compile for the device as well, for occupancy, roofline bound and a modelled time.
        limit_s: how long one run may take.
        fields: of the problem. It is executed in the op's reduced form, with whole sequences.

    Raises:
        UsageError: an unknown family or parameter, a configuration that is not valid, no blocks or no time.
        NoFeasibleConfiguration: no family computes the problem on the device.
        CompileError: the kernel does not compile.
        BuildError: there is no C++ compiler.
        LaunchError: the run took too long or tore its process down.
    """
    _require_limits(limit_s, blocks=blocks)
    require_flags(hints=hints, estimate=estimate)
    if params is not None:
        require_values("params", params)
    target = find_target(op, template, params or {}, (named(reference), named(inputs, "inputs")), device, db, fields)
    with TracingProcess(limit_s) as process, ThreadPoolExecutor(1) as beside:
        cubin = beside.submit(_cubin, target) if estimate else None  # nvcc has a core of its own
        checked = _check(process, target, target.candidate, blocks, MOST_RERUNS if hints else 0)
        return checked if cubin is None else _estimated(process, target, checked, cubin)


def check_all(  # noqa: PLR0913 - one keyword an option
    op: str | None = None,
    *,
    template: str | Path | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    device: str | None = None,
    db: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    blocks: int | None = SAMPLED_BLOCKS,
    limit_s: float = LIMIT_S,
    **fields: Value,
) -> Iterator[Checked]:
    """Check every configuration of a family (of all that compute the problem, if none is named), without hints.

    Args:
        limit: at most so many of each family, drawn at random by `seed`.

    Others as in `check`. A candidate that does not compile, hangs or crashes is told in `Checked.error`.

    Raises:
        UsageError: an unknown family, or a template that is wrong.
        NoFeasibleConfiguration: no family computes the problem on the device.
        BuildError: there is no C++ compiler, or builds cannot be cached; no other candidate would fare better.
    """
    from autotune.checker.target import find_targets

    _require_limits(limit_s, blocks=blocks, limit=limit)
    require_whole("seed", seed, 0)
    functions = named(reference), named(inputs, "inputs")
    with ExitStack() as stack:
        process = stack.enter_context(TracingProcess(limit_s))
        for target, candidate in find_targets(op, template, functions, device, db, limit, seed, fields):
            try:
                yield _check(process, target, candidate, blocks, 0)
            except BuildError:
                raise
            except AutotuneError as error:
                yield _failed(target, candidate, str(error))


def _require_limits(limit_s: float, **counts: int | None) -> None:
    require_positive("limit_s", limit_s, "seconds that one run may take")
    for name, count in counts.items():
        if count is not None:
            require_whole(name, count, 1)


def _check(
    process: TracingProcess, target: Target, candidate: Candidate, blocks: int | None, most_reruns: int
) -> Checked:
    task = _task(target, target.executed, candidate, blocks)
    traced = process.trace(task)
    hints: tuple[Hint, ...] = ()
    if most_reruns and not traced.trace.findings:
        space = Space(target.template, target.problem, target.spec)
        hints = find_hints(process.trace, task, traced, space, most_reruns)
    lines = template_lines(target.template, traced.source, target.spec)
    hints = tuple(replace(h, origin=f"{lines.name}:{lines(h.line)}" if lines(h.line) else "") for h in hints)
    return replace(_failed(target, candidate, ""), trace=traced.trace, hints=hints, source=traced.source, lines=lines)


def _task(target: Target, problem: Problem, candidate: Candidate, blocks: int | None) -> TraceTask:
    return TraceTask(target.op, target.template.path, problem, candidate.values, target.spec, blocks)


def _cubin(target: Target) -> "tuple[KernelSource, Artifact]":
    from autotune.estimate.examine import rendered

    source = rendered(_task(target, target.problem, target.candidate, None))
    with CompilesAs(target.template, source, target.spec):
        return source, CubinRequest(source, target.spec.arch).build(BuildCache())


def _estimated(
    process: TracingProcess, target: Target, checked: Checked, cubin: "Future[tuple[KernelSource, Artifact]]"
) -> Checked:
    from autotune.estimate.examine import examine

    task = _task(target, target.problem, target.candidate, SAMPLED_BLOCKS)
    try:
        source, artifact = cubin.result()
        return replace(checked, estimated=examine(task, source, lambda: artifact, process.trace))
    except AutotuneError as error:
        return replace(checked, no_estimate=str(error))


def _failed(target: Target, candidate: Candidate, error: str) -> Checked:
    empty = Trace((), (), complete=not error)
    nbytes = resolve(target.op).nbytes(target.executed)
    return Checked(
        candidate, target.problem, target.executed, target.spec.name, empty, (), nbytes, source=None, error=error
    )
