"""How long a configuration may take for a problem, from the time that it took for another one.

A look-up that finds no winner of the problem asked has to choose among those of other problems, those of other masks
and dtypes, and the families' starts. Nothing is compiled for that: what is known is each one's time where it was
measured, and what its launches are there and here. With

- *work*: the op's operations with lengths rounded up to the configuration's tiles (`Op.tiled_flops`), as the family
  executes them;
- *balance*: blocks over what the SMs hold when the busiest of them is done;
- *hiding* latency: w / (w + 4) for w warps on an SM;
- *bytes*: the tensors once, and the workspace written and read,

the compute part is the known one times work / (balance · hiding) here over the same there, and no time is less than the
bytes take. A candidate whose time nobody kept is taken to be as quick as its family is elsewhere, in the median; one of
a family that was never timed, as slow as the slowest of those that were. What is far away, of another mask or dtype, or
was never timed, counts as slower by some percent: of two that promise as much, the nearer is likelier to keep it.

These figures rank; they are no estimates of times, which `autotune.estimate.model` makes from compiled code.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from statistics import median

from autotune.core.candidate import Candidate
from autotune.core.errors import TemplateError
from autotune.core.plan import LaunchPlan
from autotune.core.problem import Problem
from autotune.estimate.fallback import product_weight
from autotune.families.planning import make_plan
from autotune.families.space import Space
from autotune.families.starts import Start
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op, problem_of
from autotune.store.entries import place

_UNKNOWN_SHARE = 0.25  # of the GPU's rate, where no time of the family is known
_HALF_HIDDEN_WARPS = 4.0
_FIRST_LAUNCH_MS = 6e-3  # launch, filling the pipelines, the last blocks alone
_NEXT_STEP_MS = 2e-3
_AN_OCTAVE_AWAY = 0.05  # by how much less a time is trusted that was taken where a length is twice as large
_ANOTHER_KIND = 0.1  # where the mask, the layout or the dtype is another
_NEVER_TIMED = 0.6


@dataclass(frozen=True)
class Known:
    """A candidate, and what is known of it: the time it took for a problem. `ms` is None where nobody kept one."""

    candidate: Candidate
    problem: Problem | None = None
    ms: float | None = None


@dataclass(frozen=True)
class Expected:
    """What a candidate promises for a problem.

    `distance` is how far the problem of the known time is: log2 of lengths and counts, as a Euclidean distance;
    infinite where no time is known. `alike`: mask, layout and dtype are the same there.
    """

    known: Known
    ms: float
    distance: float
    alike: bool


def known_starts(
    template: Template, problem: Problem, spec: DeviceSpec, most: int
) -> Iterator[tuple[Known, Start | None]]:
    """A family's first starts for a problem, and its default, as contenders: with their times where they are of this
    GPU. Each with what the file beside the template says of it."""
    space = Space(template, problem, spec)
    for config, start in islice(space.known_starts(), most):
        here = start is not None and start.device == spec.name
        timed = (problem_of(start.problem), start.ms) if start is not None and here else ()
        yield Known(space.candidate(config), *timed), start


def by_promise(
    contenders: Iterable[Known], templates: Mapping[str, Template], problem: Problem, spec: DeviceSpec
) -> list[Expected]:
    """Candidates that are valid for the problem, the most promising first.

    Raises:
        TemplateError: an expression of a front matter has a value of no use.
    """
    op, timed, untimed = get_op(problem.op), [], []
    rates: dict[str, list[float]] = {}
    for known in contenders:
        template = templates[known.candidate.template]
        here = _work(template, known.candidate, problem, spec)
        there = _elsewhere(template, known, spec)
        if there is None or known.ms is None or known.problem is None:
            untimed.append((known, here))
            continue
        rate = there.cost / max(known.ms - there.overhead_ms, 0.1 * known.ms)
        rates.setdefault(template.name, []).append(rate)
        away = math.dist(place(known.problem, op.exact_fields), place(problem, op.exact_fields))
        alike = all(known.problem[name] == problem[name] for name in op.exact_fields)
        doubt = 1 + _AN_OCTAVE_AWAY * away * (1 + away / 5) + (0 if alike else _ANOTHER_KIND)
        timed.append(Expected(known, here.ms(rate, spec) * doubt, away, alike))
    for known, here in untimed:
        template = templates[known.candidate.template]
        peak = (spec.tensor_tflops if template.front.tensor_cores else spec.fp32_tflops) * 1e9
        slowest = min((min(known_rates) for known_rates in rates.values()), default=_UNKNOWN_SHARE * peak)
        rate = median(rates.get(template.name, [slowest]))
        timed.append(Expected(known, here.ms(rate, spec) * (1 + _NEVER_TIMED), math.inf, alike=False))
    return sorted(timed, key=lambda expected: expected.ms)


def _elsewhere(template: Template, known: Known, spec: DeviceSpec) -> "_Work | None":
    """The candidate's work where it was timed; None where that is not known or it is not valid there today."""
    if known.problem is None or known.ms is None:
        return None
    with suppress(TemplateError):
        return _work(template, known.candidate, known.problem, spec)
    return None


@dataclass(frozen=True)
class _Work:
    """What a plan has to do. `cost`: operations that would take as long if every SM were as busy as can be."""

    cost: float
    nbytes: float
    overhead_ms: float

    def ms(self, rate: float, spec: DeviceSpec) -> float:
        """The time at a rate (cost a millisecond), and at the GPU's bandwidth."""
        return self.overhead_ms + max(self.cost / rate, self.nbytes / (spec.bandwidth_gbs * 1e6))


_WORKS: dict[tuple[str, Candidate, Problem, DeviceSpec], _Work] = {}
_MOST_WORKS = 16384


def _work(template: Template, candidate: Candidate, problem: Problem, spec: DeviceSpec) -> _Work:
    """Kept: look-ups for many problems ask again and again what the same winners do where they were timed."""
    key = (template.hash, candidate, problem, spec)
    known = _WORKS.get(key)
    if known is None:
        op, config = get_op(problem.op), candidate.config
        names = Space(template, problem, spec).namespace(config)
        plan = make_plan(template, op, problem, names)
        flops = template.executed_flops(op.tiled_flops(problem, config), problem)
        scratch = sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "workspace")
        overhead = _FIRST_LAUNCH_MS + _NEXT_STEP_MS * max(0, len(plan.steps) - 1)
        known = _Work(flops / _busy(plan, names.get("WORKS"), spec), op.nbytes(problem) + 2.0 * scratch, overhead)
        if len(_WORKS) >= _MOST_WORKS:
            _WORKS.clear()
        _WORKS[key] = known
    return known


def _busy(plan: LaunchPlan, works: int | None, spec: DeviceSpec) -> float:
    """Share (0 to 1) of the SMs' time that the heaviest launch uses.

    A family whose blocks stay and take one piece of work after the other calls the number of pieces WORKS.
    """
    sizes = {buffer.name: buffer.elements for buffer in plan.buffers}
    launch = max(plan.launches, key=lambda launch: product_weight(launch, sizes))
    pieces = max(launch.blocks, works or 0)
    an_sm = math.ceil(pieces / spec.sm_count)
    most = spec.max_threads_per_sm // spec.warp_size
    at_once = math.ceil(launch.blocks / spec.sm_count)
    warps = min(at_once * math.ceil(launch.threads / spec.warp_size), most)
    return pieces / (an_sm * spec.sm_count) * warps / (warps + _HALF_HIDDEN_WARPS)
