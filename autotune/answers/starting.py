"""Starts of families and records: starts checked, starts made of records, and where winners ask for new ones."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError, UsageError
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.core.words import format_ms
from autotune.families.expressions import Expression
from autotune.families.space import Space
from autotune.families.starts import SUFFIX, Start, starts_text
from autotune.families.template import Template
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op, problem_of
from autotune.store.json_lines import Line


def faults(template: Template) -> Iterator[str]:
    """What is wrong with a family's starts.

    Each must hold for the problem that it names, on the GPU that it comes from, and be valid there; none may repeat
    another; and the file must be as the command writes it.
    """
    seen: set[tuple[str, tuple[tuple[str, Value], ...]]] = set()
    for number, start in enumerate(template.starts, start=1):
        where = f"start {number} ({start.when.text})"
        config = {**template.defaults, **dict(start.values)}
        if (start.when.text, tuple(config.items())) in seen:
            yield f"{where} repeats another"
        seen.add((start.when.text, tuple(config.items())))
        try:
            why = _why_not(template, start, problem_of(start.problem), gpu(start.device))
        except AutotuneError as error:
            why = str(error)
        if why is not None:
            yield f"{where}: {why}"
    path = template.path.with_name(template.name + SUFFIX)
    if template.starts and path.read_text(encoding="utf-8") != starts_text(template.starts):
        yield f"{path.name} is not as `autotune db starts` writes it"


def _why_not(template: Template, start: Start, problem: Problem, spec: DeviceSpec) -> str | None:
    """Why a start is none for a problem on a GPU; None when it is."""
    with template.named_errors():
        if not start.when({**problem.fields, "device": spec}):
            return f"it does not hold for its problem {problem} on {spec.name}"
    unsupported = template.why_unsupported(problem, spec)
    return unsupported or Space(template, problem, spec).why_not({**template.defaults, **dict(start.values)})


def start_of(template: Template, line: Line, when: str) -> Start:
    """A record as a start of its family, where `when` holds.

    Raises:
        UsageError: the record has no time, or `when` does not hold for it, or its configuration is not valid today.
        ExpressionError: `when` is no expression.
    """
    timing = line.measurement.timing
    if line.measurement.outcome is not Outcome.OK or timing is None:
        raise UsageError(
            f"a start is a configuration that was right and timed; this one's is {line.measurement.outcome}"
        )
    config, defaults = line.candidate.config, template.defaults
    values = tuple((name, value) for name, value in config.items() if name not in defaults or value != defaults[name])
    if not values:
        raise UsageError(f"the configuration is the default of {template.name}, which is tried in any case")
    how = "" if timing.kind == "measured" else "estimated "
    what = "winner" if line.is_winner else line.stage
    origin = f"{what}, {how}{format_ms(timing.median_ms)} ms"
    start = Start(Expression(when), values, line.identity.spec.name, line.problem.key, origin)
    why = _why_not(template, start, line.problem, line.identity.spec)
    if why is not None:
        raise UsageError(f"no start of {template.name}: {why}")
    return start


def with_start(template: Template, start: Start, at: int | None) -> tuple[Start, ...]:
    """The family's starts with another one before the `at`-th, by default behind all.

    Raises:
        UsageError: it is there already.
    """
    for number, known in enumerate(template.starts, start=1):
        if (known.when.text, dict(known.values)) == (start.when.text, dict(start.values)):
            raise UsageError(f"start {number} of {template.name} is the same")
    place = len(template.starts) if at is None else at - 1
    return (*template.starts[:place], start, *template.starts[place:])


@dataclass(frozen=True)
class Regime:
    """Problems that agree in the fields of which a family's speed depends most, and what won there.

    `missing`: the configuration that won most often without being one of the starts for its problem, how often, and a
    record of it.
    """

    op: str
    template: str
    device: str
    when: str
    winners: int
    begun_with: int
    missing: Candidate | None
    times: int
    source_hash: str


def regimes(templates: Iterable[Template], lines: Sequence[Line]) -> Iterator[Regime]:
    """For each family, GPU and combination of an op's exact fields: winners that searches begin with, and others."""
    for template in templates:
        groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
        for line in lines:
            if (line.problem.op, line.candidate.template) == (template.op, template.name):
                groups[line.identity.name, condition(line.problem)].append(line)
        for (device, when), members in sorted(groups.items()):
            others = [line for line in members if line.candidate.config not in _starts(template, line)]
            counts = Counter(line.candidate.values for line in others)
            values, times = counts.most_common(1)[0] if counts else ((), 0)
            example = next((line for line in others if line.candidate.values == values), None)
            yield Regime(
                template.op, template.name, device, when, len(members), len(members) - len(others),
                None if example is None else example.candidate, times, "" if example is None else example.source_hash,
            )  # fmt: skip


def condition(problem: Problem) -> str:
    """An expression that holds for problems that agree with this one in the op's exact fields, the layout left out."""
    parts = []
    for name in get_op(problem.op).exact_fields:
        value = problem[name]
        if isinstance(value, bool):
            parts.append(name if value else f"not {name}")
        elif name != "layout":
            parts.append(f"{name} == {value!r}")
    return " and ".join(parts) or "true"


def _starts(template: Template, line: Line) -> Sequence[dict[str, Value]]:
    if template.why_unsupported(line.problem, line.identity.spec) is not None:
        return ()
    try:
        return Space(template, line.problem, line.identity.spec).starts()
    except AutotuneError:  # no configuration is valid any more
        return ()
