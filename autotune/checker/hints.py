"""What to change: a problem in the counters, and a parameter that a rerun has shown to remove it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autotune.core.errors import AutotuneError
from autotune.core.values import Value
from autotune.core.words import number
from autotune.families.frontmatter import Parameter
from autotune.families.reduced import computes
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.trace.observed import KernelTrace, LineCounters, Trace
from autotune.trace.task import Traced, TraceTask

Trouble = Literal["bank conflicts", "uncoalesced accesses"]

_LEAST_SHARE = 0.05
"""Of a kernel's passes or sectors: what costs less is no trouble."""

_GREAT_SHARE = 0.2
"""What costs so much is told even if no parameter removes it."""

_FACTORS = {"removes": 0.05, "halves": 0.55}
"""What is left of the trouble, at most."""

_WORDS: Mapping[Trouble, tuple[str, ...]] = {
    "bank conflicts": ("PAD", "SWIZZL", "STRIDE", "LANES", "VEC", "COLS", "LAYOUT", "TRANSPOSE"),
    "uncoalesced accesses": ("VEC", "LANES", "COALESC", "LAYOUT", "TRANSPOSE", "GRID", "MAP"),
}
"""Parts of the names of parameters that are tried, those that promise most first."""


@dataclass(frozen=True)
class Hint:
    """A trouble at a line, and the change that a rerun confirmed; of a great trouble also that none tried helps.

    `line` is the rendered source's; `origin` its place in the template, `softmax.cu.j2:57`, where that is known.
    """

    kernel: str
    line: int
    trouble: Trouble
    detail: str  # "32-way bank conflict, 12 % of the kernel's passes through shared memory"
    parameter: str
    value: Value
    effect: Literal["removes", "halves", "remains"]
    origin: str = ""

    def __str__(self) -> str:
        change = f"{self.parameter}={self.value} {self.effect} it"
        if self.effect == "remains":
            tried = f"{number(int(self.value), 'other value')} of its parameters tried, none halves it"
            change = tried if self.value else "no parameter that promises to change it has another valid value"
        return f"{self.kernel}, {self.origin or f'line {self.line}'}: {self.detail}; {change}"

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "message": str(self)}


def find_hints(
    run: Callable[[TraceTask], Traced], task: TraceTask, traced: Traced, space: Space, most_reruns: int
) -> tuple[Hint, ...]:
    """Hints that a rerun of the changed configuration has confirmed, and great troubles that none of those removes.

    At most `most_reruns` reruns in all.
    """
    hints: list[Hint] = []
    known: dict[tuple[str, Value], Trace | None] = {}
    for kernel, row, trouble in _troubles(traced.trace):
        tried, about = 0, (kernel.kernel, row.place.line, trouble, _detail(kernel, row))
        for parameter, value in _changes(space, dict(task.config), trouble):
            if (parameter, value) not in known:
                if len(known) >= most_reruns:
                    continue
                known[parameter, value] = _rerun(run, task, space.template, parameter, value)
            tried += 1
            effect = _effect(kernel, known[parameter, value], trouble)
            if effect:
                hints.append(Hint(*about, parameter, value, effect))
                break
        else:
            if _share(kernel, row, trouble) >= _GREAT_SHARE:
                hints.append(Hint(*about, "", tried, "remains"))
    return tuple(hints)


def _troubles(trace: Trace) -> Iterator[tuple[KernelTrace, LineCounters, Trouble]]:
    """The worst line of each trouble that costs enough, by kernel."""
    for kernel in trace.kernels:
        for trouble in ("bank conflicts", "uncoalesced accesses"):
            worst = max(kernel.lines, key=lambda row, trouble=trouble: _waste(row, trouble), default=None)  # type: ignore[misc]
            if worst is not None and _share(kernel, worst, trouble) >= _LEAST_SHARE:
                yield kernel, worst, trouble


def _waste(row: LineCounters, trouble: Trouble) -> int:
    return row.conflicts if trouble == "bank conflicts" else row.sectors - row.ideal_sectors


def _total(kernel: KernelTrace, trouble: Trouble) -> float:
    """The trouble of all blocks."""
    return kernel.scale * sum(_waste(row, trouble) for row in kernel.lines)


def _share(kernel: KernelTrace, row: LineCounters, trouble: Trouble) -> float:
    paid = sum(r.wavefronts if trouble == "bank conflicts" else r.sectors for r in kernel.lines)
    return _waste(row, trouble) / paid if paid else 0.0


def _changes(space: Space, config: dict[str, Value], trouble: Trouble) -> Iterator[tuple[str, Value]]:
    """One parameter changed, to the nearest values first: those whose names promise something, or all if none does."""
    words = _WORDS[trouble]

    def promise(parameter: Parameter) -> int:
        return min((i for i, word in enumerate(words) if word in parameter.name.upper()), default=len(words))

    promising = [parameter for parameter in space.template.parameters if promise(parameter) < len(words)]
    for parameter in sorted(promising or space.template.parameters, key=promise):
        at = parameter.values.index(config[parameter.name])
        for value in sorted(parameter.values, key=lambda v, p=parameter, at=at: abs(p.values.index(v) - at)):  # type: ignore[misc]
            if value != config[parameter.name] and space.why_not({**config, parameter.name: value}) is None:
                yield parameter.name, value


def _rerun(
    run: Callable[[TraceTask], Traced], task: TraceTask, template: Template, parameter: str, value: Value
) -> Trace | None:
    changed = task.with_config({**dict(task.config), parameter: value}, task.blocks)
    if not computes(template, task.problem, dict(changed.config), task.spec):  # as it does the one asked for
        return None
    try:
        return run(changed).trace
    except AutotuneError:
        return None


def _effect(kernel: KernelTrace, trace: Trace | None, trouble: Trouble) -> Literal["removes", "halves"] | None:
    """What the change did to the kernel, unless something else got worse or is wrong."""
    if trace is None or trace.findings:
        return None
    same = [other for other in trace.kernels if other.kernel == kernel.kernel]
    if not same:
        return None
    if _cost(same[0], "sectors") > 1.05 * _cost(kernel, "sectors"):
        return None
    if _cost(same[0], "wavefronts") > 1.05 * _cost(kernel, "wavefronts"):
        return None
    left = _total(same[0], trouble) / _total(kernel, trouble)
    if left <= _FACTORS["removes"]:
        return "removes"
    return "halves" if left <= _FACTORS["halves"] else None


def _cost(kernel: KernelTrace, name: Literal["sectors", "wavefronts"]) -> float:
    return kernel.scale * float(sum(getattr(row, name) for row in kernel.lines))


def _detail(kernel: KernelTrace, row: LineCounters) -> str:
    if row.wavefronts:
        share = _share(kernel, row, "bank conflicts")
        return f"{row.worst}-way bank conflict, {share:.0%} of the passes through shared memory"
    share = _share(kernel, row, "uncoalesced accesses")
    each = row.sectors / row.requests
    return f"{each:.3g} sectors a request where {row.ideal_sectors / row.requests:.3g} would do, {share:.0%} of all"
