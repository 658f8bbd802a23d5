"""How long a configuration may take for a problem, from the time that it took for another one.

A look-up that finds no winner of the problem asked has to choose among those of other problems, those of other masks
and dtypes, and the families' starts. Nothing is compiled for that: what is known is each one's time where it was
measured, and what its launches are there and here. With

- *work*: the op's operations with lengths rounded up to the configuration's tiles (`Op.tiled_flops`) and the head to
  their width (which a family calls HS_TILE or COLS, that of V and out HS_V_TILE or V_COLS), as it executes them;
- *balance*, *hiding* and *begun*: how busy its blocks keep the SMs (`autotune.estimate.load`);
- *bytes*: the tensors once, and the workspace written and read, at the share of the bandwidth for which enough bytes
  are under way,
- *additions*: to sums in memory, each element of fp32 read and written at the whole bandwidth. Nothing hides those when
  blocks have computed (a family counts them as ADDED_AT_END); computing takes no less than those beside it
  (ADDED_BESIDE, as if nothing were masked),

the compute part is the known one times work / (balance · hiding) here over the same there; half of the shorter of
computing and moving bytes comes on top of the longer; and no time is less than the work takes at the GPU's peak: where
bytes bound the known time, it says little of how fast work is done. A candidate whose time nobody kept is taken to be
as quick as its family is at the nearest problems; one of a family that was never timed, as slow as the slowest of those
that were, or a quarter of the GPU's rate. What is far away, of another mask or dtype, or was never timed, counts as
slower by some percent: of two that promise as much, the nearer is likelier to keep it. A pace from far away is doubted
as much as a time from there. A start that its family lists for such problems without a time counts for more than a
default.

These figures rank; they are no estimates of times, which `autotune.estimate.model` makes from compiled code.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from statistics import median

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import TemplateError
from autotune.core.problem import Problem
from autotune.estimate.load import load_of
from autotune.families.planning import make_plan
from autotune.families.space import Space
from autotune.families.starts import Start
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op, problem_of
from autotune.store.entries import place

_UNKNOWN_SHARE = 0.25  # of the GPU's rate, where no time of the family is known
_FIRST_LAUNCH_MS = 6e-3  # launch, filling the pipelines, the last blocks alone
_NEXT_STEP_MS = 3e-3
_AN_OCTAVE_AWAY = 0.07  # mean error of what a time foretells where a length is twice as large; it grows as the root
_ANOTHER_KIND = 0.1  # where the mask, the layout or the dtype is another
_ANOTHER_VALUE = 0.1  # where a value is another one than was timed
_ANOTHER_RUN = 0.03  # a start's time is not of the run in which winners were compared
_OF_BYTES = 0.4  # of what bytes had of the known time more than they have here: it says the less of how fast work is
_MOSTLY = 0.5  # the share from which on bytes are taken to have bound a known time
_NEVER_TIMED = 0.6
_NEAREST = 3  # times of a family whose median is taken for a candidate without one
_LISTED = 0.15  # a start for just such problems, never timed
_UNHIDDEN = 0.5  # of the shorter of computing and moving bytes: the first tiles come before, the last results go after
_ANOTHER_SIZE_AWAY = 1.0  # octaves that a time for another head size or mask counts as further away, as a family's rate
_TILES = {"HS": ("HS_TILE", "COLS"), "HS_v": ("HS_V_TILE", "V_COLS")}
"""How families call the widths that heads are computed with."""


@dataclass(frozen=True)
class Known:
    """A candidate, and what is known of it: the time it took for a problem. `ms` is None where nobody kept one.

    `listed`: it is a start that its family lists for such problems. `like`: the time is of this one, from which the
    candidate differs in a value (`autotune.estimate.varied`).
    """

    candidate: Candidate
    problem: Problem | None = None
    ms: float | None = None
    listed: bool = False
    like: Candidate | None = None


@dataclass(frozen=True)
class Expected:
    """What a candidate promises for a problem: candidates are ordered by `ms`, which is `likely_ms` and what counts for
    the doubt that it is right.

    `distance` is how far the problem of the known time is: log2 of lengths and counts, as a Euclidean distance;
    infinite where no time is known. `alike`: mask, layout and dtype are the same there.
    """

    known: Known
    ms: float
    distance: float
    alike: bool
    likely_ms: float


def known_starts(
    template: Template, problem: Problem, spec: DeviceSpec, most: int
) -> Iterator[tuple[Known, Start | None]]:
    """A family's first starts for a problem, and its default, as contenders: with their times where they are of this
    GPU. Each with what the file beside the template says of it."""
    space = Space(template, problem, spec)
    for config, start in islice(space.known_starts(), most):
        here = start is not None and start.device == spec.name
        there, ms = (problem_of(start.problem), start.ms) if start is not None and here else (None, None)
        yield Known(space.candidate(config), there, ms, listed=start is not None), start


def by_promise(
    contenders: Iterable[Known], templates: Mapping[str, Template], problem: Problem, spec: DeviceSpec
) -> list[Expected]:
    """Candidates that are valid for the problem, the most promising first.

    Raises:
        TemplateError: an expression of a front matter has a value of no use.
    """
    op, timed, untimed = get_op(problem.op), [], []
    rates: dict[str, list[_Pace]] = {}  # of each family
    for known in contenders:
        template = templates[known.candidate.template]
        here = _work(template, known.candidate, problem, spec)
        rate = _rate(template, known, spec)
        if rate is None or known.problem is None:
            untimed.append((known, here))
            continue
        away = math.dist(place(known.problem, op.exact_fields), place(problem, op.exact_fields))
        share = _bytes_share(template, known, spec)
        rates.setdefault(template.name, []).append((share > _MOSTLY, away, rate))
        alike = all(known.problem[name] == problem[name] for name in op.exact_fields)
        doubt = _doubt(away) + (0 if alike else _ANOTHER_KIND)
        doubt += (_ANOTHER_RUN if known.listed else 0) + (_ANOTHER_VALUE if known.like is not None else 0)
        own = known.ms if known.problem == problem and known.like is None else None
        likely = here.ms(rate, spec) if own is None else own  # a time of this very problem needs no model
        doubt += _OF_BYTES * max(0.0, share - here.share_of_bytes(likely, spec))
        timed.append(Expected(known, likely * doubt, away, alike, likely))
    paces: dict[tuple[str, bool], tuple[float, float] | None] = {}
    told = [(pace[-1], pace[1]) for of_one in rates.values() for pace in of_one]
    for known, here in untimed:
        template, bound = templates[known.candidate.template], here.memory_ms(spec) > here.least_ms
        if (template.name, bound) not in paces:
            of_family = [*rates.get(template.name, ()), *_starts_rates(template, problem, spec)]
            nearest = sorted(of_family, key=lambda pace: (pace[0] and not bound, *pace[1:]))[:_NEAREST]
            paces[template.name, bound] = (
                (median(rate for *_, rate in nearest), median(away for _, away, _ in nearest)) if nearest else None
            )
        unknown = (_UNKNOWN_SHARE * _peak(template, spec), max((away for _, away in told), default=0.0))
        rate, away = paces[template.name, bound] or min([unknown, *told])
        doubt = _doubt(away) + (_LISTED if known.listed else _NEVER_TIMED)
        doubt += _ANOTHER_VALUE if known.like is not None else 0
        likely = here.ms(rate, spec)
        timed.append(Expected(known, likely * doubt, math.inf, alike=False, likely_ms=likely))
    return sorted(timed, key=lambda expected: expected.ms)


def _doubt(away: float) -> float:
    """How many times as long a candidate may take as its pace so many octaves away says."""
    return 1 + _AN_OCTAVE_AWAY * math.sqrt(away)


_Pace = tuple[bool, float, float]
"""Whether bytes bound a known time, which then says little of how fast work is done; how far away that was; the rate
there."""

_START_RATES: dict[tuple[str, str, DeviceSpec], tuple[tuple[Problem, bool, float], ...]] = {}


def _starts_rates(template: Template, problem: Problem, spec: DeviceSpec) -> Iterator[_Pace]:
    """What a family's timed starts tell; they need not be valid here."""
    key = template.name, template.hash, spec
    if key not in _START_RATES:
        _START_RATES[key] = tuple(_timed_starts(template, spec))
    exact = get_op(problem.op).exact_fields
    for there, bound, rate in _START_RATES[key]:
        other_size = sum(there[name] != problem[name] for name in exact if isinstance(problem[name], int))
        yield bound, math.dist(place(there, exact), place(problem, exact)) + _ANOTHER_SIZE_AWAY * other_size, rate


def _timed_starts(template: Template, spec: DeviceSpec) -> Iterator[tuple[Problem, bool, float]]:
    for start in template.starts:
        if start.ms is not None and start.device == spec.name:
            config = {**template.defaults, **dict(start.values)}
            known = Known(make_candidate(template.name, template.hash, config), problem_of(start.problem), start.ms)
            rate = _rate(template, known, spec)
            if known.problem is not None and rate is not None:
                yield known.problem, _bytes_share(template, known, spec) > _MOSTLY, rate


def _bytes_share(template: Template, known: Known, spec: DeviceSpec) -> float:
    """How much of a known time is that of its bytes, 0 to 1."""
    if known.problem is None or known.ms is None:
        return 0.0
    there = _work(template, known.like or known.candidate, known.problem, spec)
    return there.share_of_bytes(known.ms, spec)


def _rate(template: Template, known: Known, spec: DeviceSpec) -> float | None:
    """Cost a millisecond where a candidate was timed; None where that is not known or it is not valid there today.

    What differs from it in a value is taken to be no faster there than what won.
    """
    if known.problem is None or known.ms is None:
        return None
    rates = []
    with suppress(TemplateError):
        for candidate in filter(None, (known.candidate, known.like)):
            there = _work(template, candidate, known.problem, spec)
            beside = there.overhead_ms + _UNHIDDEN * there.memory_ms(spec)
            rates.append(there.cost / max(known.ms - beside, 0.1 * known.ms))
        return min(rates)
    return None


def _peak(template: Template, spec: DeviceSpec) -> float:
    """Operations a millisecond of the units that a family multiplies with."""
    return (spec.tensor_tflops if template.front.tensor_cores else spec.fp32_tflops) * 1e9


@dataclass(frozen=True)
class _Work:
    """What a plan has to do. `cost`: operations that would take as long if every SM were as busy as can be; `nbytes`:
    bytes that would take as long at the whole bandwidth; `least_ms`: the operations at the peak, latency all hidden, or
    the additions beside them."""

    cost: float
    nbytes: float
    overhead_ms: float
    least_ms: float

    def memory_ms(self, spec: DeviceSpec) -> float:
        """The time that the bytes take."""
        return self.nbytes / (spec.bandwidth_gbs * 1e6)

    def share_of_bytes(self, ms: float, spec: DeviceSpec) -> float:
        """How much of a time is that of the bytes, 0 to 1."""
        return min(1.0, self.memory_ms(spec) / max(ms - self.overhead_ms, 0.1 * ms))

    def ms(self, rate: float, spec: DeviceSpec) -> float:
        """The time at a rate (cost a millisecond), and at the GPU's bandwidth."""
        compute, memory = max(self.cost / rate, self.least_ms), self.memory_ms(spec)
        return self.overhead_ms + max(compute, memory) + _UNHIDDEN * min(compute, memory)


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
        tiles = {
            size: next(names[tile] for tile in tiles if tile in names)
            for size, tiles in _TILES.items()
            if size in names and any(tile in names for tile in tiles)
        }
        flops = template.executed_flops(op.tiled_flops(problem.replace(**tiles), config), problem)
        scratch = sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "workspace")
        load = load_of(plan, names, op.heaviest(problem, config), spec, tensor_cores=template.front.tensor_cores)
        an_addition_ms = 2 * 4 / (spec.bandwidth_gbs * 1e6)
        ending_ms = names.get("ADDED_AT_END", 0) * an_addition_ms
        beside_ms = names.get("ADDED_BESIDE", 0) * op.unmasked(problem, config) * an_addition_ms
        overhead = _FIRST_LAUNCH_MS + _NEXT_STEP_MS * max(0, len(plan.steps) - 1) + load.begun_ms + ending_ms
        nbytes = (op.nbytes(problem) + 2.0 * scratch) / load.reach
        least = max(flops / load.balance / _peak(template, spec), beside_ms)
        known = _Work(flops / load.busy, nbytes, overhead, least)
        if len(_WORKS) >= _MOST_WORKS:
            _WORKS.clear()
        _WORKS[key] = known
    return known
