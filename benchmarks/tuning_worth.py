"""What tuning is worth, from recorded searches: winners beside defaults and other trials, and how they vary with shape.

    python -m benchmarks.tuning_worth records.jsonl.gz … [-o worth.md]

Reads all records of one GPU (files of JSON lines, or databases), needs no GPU, prints Markdown. Times are those of
trials, so that all were taken in the same way; a candidate given up as too slow counts with the time that was seen.
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median, quantiles

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import NoFeasibleConfiguration
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.gpus.spec import DeviceSpec
from autotune.store.json_lines import Line
from benchmarks.merge_winners import lines_of
from benchmarks.rows import Group, Row

_TIMED = (Outcome.OK, Outcome.PRUNED)


@dataclass
class Searched:
    """One problem's search: the trials' milliseconds by candidate, the winner, and each family's first choices."""

    problem: Problem
    ms: dict[Candidate, float] = field(default_factory=dict)
    winner: Candidate | None = None
    defaults: dict[str, Candidate] = field(default_factory=dict)
    unsuggested: dict[str, Candidate] = field(default_factory=dict)

    @property
    def group(self) -> Group:
        """Problems of the same group differ in B, NH and T alone."""
        return Row(self.problem).group

    @property
    def best_ms(self) -> float:
        """The winner's trial."""
        assert self.winner is not None
        return self.ms[self.winner]

    def loss(self, candidate: Candidate | None) -> float | None:
        """A candidate's time over the winner's; None where it was not measured."""
        return None if candidate is None or candidate not in self.ms else self.ms[candidate] / self.best_ms

    @property
    def default_loss(self) -> float | None:
        """Of the default of the winner's family."""
        assert self.winner is not None
        return self.loss(self.defaults.get(self.winner.template))

    @property
    def unsuggested_loss(self) -> float | None:
        """Of the first value of each parameter of the winner's family, which no measurement chose for the problem."""
        assert self.winner is not None
        return self.loss(self.unsuggested.get(self.winner.template))

    def tail(self, share: float) -> float:
        """The time that this share of the trials is faster than, over the winner's."""
        times = sorted(self.ms.values())
        if len(times) == 1:
            return 1.0
        return quantiles(times, n=100, method="inclusive")[round(100 * share) - 1] / self.best_ms


def searched(lines: Iterable[Line], gpu: str) -> list[Searched]:
    """Every problem with a winner on the GPU, in the records' order. A candidate counts with its fastest trial."""
    found: dict[Problem, Searched] = {}
    finals: dict[tuple[Problem, Candidate], float] = {}
    for line in lines:
        ms = line.measurement.ms
        if line.identity.name != gpu or line.measurement.outcome not in _TIMED or ms is None:
            continue
        one = found.setdefault(line.problem, Searched(line.problem))
        if line.is_winner:
            one.winner = line.candidate
            one.defaults = family_defaults(line.problem, line.identity.spec)
            one.unsuggested = unsuggested(line.problem.op)
        if line.stage == "final":
            finals[line.problem, line.candidate] = ms
        else:
            one.ms[line.candidate] = min(ms, one.ms.get(line.candidate, math.inf))
    for one in found.values():
        if one.winner is not None and one.winner not in one.ms:
            one.ms[one.winner] = finals[one.problem, one.winner]
    return [one for one in found.values() if one.winner is not None]


def family_defaults(problem: Problem, spec: DeviceSpec) -> dict[str, Candidate]:
    """What each family would choose untuned, by name."""
    defaults = {}
    for template in builtin_templates(problem.op):
        if template.why_unsupported(problem, spec) is None:
            space = Space(template, problem, spec)
            try:
                defaults[template.name] = space.candidate(space.default())
            except NoFeasibleConfiguration:
                continue
    return defaults


def unsuggested(op: str) -> dict[str, Candidate]:
    """Each family's first value of every parameter, whether valid for a problem or not, by name."""
    families = builtin_templates(op)
    return {family.name: make_candidate(family.name, family.hash, family.defaults) for family in families}


def worth_table(found: Sequence[Searched]) -> str:
    """A line a problem: the winner, and how much slower the default, the median and the slow tenth of trials are."""
    lines = [
        "| problem | trials | family | winner, ms | default | median trial | slowest tenth from |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        assert one.winner is not None
        losses = (one.default_loss, median(one.ms.values()) / one.best_ms, one.tail(0.9))
        head = f"| {Row(one.problem).label} | {len(one.ms)} | {one.winner.template} | {one.best_ms:.4f} "
        lines.append(head + "| " + " | ".join(map(_times, losses)) + " |")
    known = [loss for one in found if (loss := one.default_loss) is not None]
    if known:
        lines += ["", f"Default over winner: geometric mean {geometric_mean(known):.2f}, most {max(known):.2f}, "
                      f"{sum(loss > 1.05 for loss in known)} of {len(known)} more than 5 % slower."]  # fmt: skip
    return "\n".join(lines)


def group_table(found: Sequence[Searched]) -> str:
    """A line a group of problems that differ in B, NH and T alone: geometric means of the losses, and the largest."""
    groups: dict[tuple[Group, str], list[Searched]] = {}
    for one in found:
        assert one.winner is not None
        groups.setdefault((one.group, one.winner.template), []).append(one)
    lines = [
        "| op | dtype | HS | mask | family | problems | starting configuration (most) | unsuggested (most) "
        "| median trial | slowest tenth |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (_, family), members in sorted(groups.items(), key=lambda item: _order(item[1][0].problem)):
        fields = members[0].problem.fields
        mask = "causal" if fields["causal"] else "none"
        cells = (members[0].problem.op, fields["dtype"], fields["HS"], mask, f"`{family}`", _means(members))
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, f"| all | | | | | {_means(found)} |"])


def _order(problem: Problem) -> tuple[bool, str, int, bool]:
    fields = problem.fields
    return problem.op == "backward", str(fields["dtype"]), int(fields["HS"]), not fields["causal"]


def _means(members: Sequence[Searched]) -> str:
    cells = [str(len(members))]
    for losses in ([one.default_loss for one in members], [one.unsuggested_loss for one in members]):
        known = [loss for loss in losses if loss is not None]
        cells.append(f"{geometric_mean(known):.2f} ({max(known):.2f})" if known else "")
    cells.append(f"{geometric_mean(median(one.ms.values()) / one.best_ms for one in members):.2f}")
    cells.append(f"{geometric_mean(one.tail(0.9) for one in members):.2f}")
    return " | ".join(cells)


def parameter_tables(found: Sequence[Searched]) -> str:
    """For each op and family the winners' parameters by problem: those that vary as columns, the others once."""
    parts = []
    families = dict.fromkeys((one.problem.op, one.winner.template) for one in found if one.winner is not None)
    for op, family in families:
        members = [one for one in found if one.problem.op == op and one.winner and one.winner.template == family]
        configs = [one.winner.config for one in members if one.winner is not None]
        varying = [name for name in configs[0] if len({config.get(name) for config in configs}) > 1]
        same = ", ".join(f"{name}={value}" for name, value in configs[0].items() if name not in varying)
        lines = [f"{op}, `{family}`; the same for all: {same or 'nothing'}.", ""]
        lines += ["| problem | " + " | ".join(varying) + " |", "|---|" + "---|" * len(varying)]
        for one, config in zip(members, configs, strict=True):
            label = Row(one.problem).label.removeprefix(f"{op} ")
            lines.append(f"| {label} | " + " | ".join(str(config.get(name)) for name in varying) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def transfer_tables(found: Sequence[Searched]) -> str:
    """For each group the cost of one problem's winner on another, and of the best single configuration for all."""
    parts = []
    for group in dict.fromkeys(one.group for one in found):
        members = sorted((one for one in found if one.group == group), key=lambda one: -one.problem.integer("T"))
        if len(members) > 1:
            parts.append(_transfer_table(group, members))
    return "\n\n".join(parts)


def _transfer_table(group: Group, members: Sequence[Searched]) -> str:
    op, dtype, HS, causal = group
    names = [f"T={m.problem['T']} B={m.problem['B']} NH={m.problem['NH']}" for m in members]
    lines = [f"{op} {dtype} HS={HS} {'causal' if causal else 'full'}", ""]
    lines += ["| winner of | " + " | ".join(f"on {name}" for name in names) + " |", "|---|" + "---|" * len(names)]
    for one, name in zip(members, names, strict=True):
        lines.append(f"| {name} | " + " | ".join(_times(other.loss(one.winner)) for other in members) + " |")
    shared = single_best(members)
    if shared is not None:
        losses = [loss for one in members if (loss := one.loss(shared)) is not None]
        cost = f"{geometric_mean(losses):.3f} times the winners' times (geometric mean), at most {max(losses):.3f}"
        lines += ["", f"Best single configuration, measured on all: {cost}: {shared.key}"]
    return "\n".join(lines)


def single_best(members: Sequence[Searched]) -> Candidate | None:
    """The candidate measured on all problems with the least geometric mean of its losses."""
    common = set.intersection(*(set(one.ms) for one in members))

    def mean(candidate: Candidate) -> float:
        return geometric_mean(one.ms[candidate] / one.best_ms for one in members)

    return min(common, key=lambda candidate: (mean(candidate), candidate.key), default=None)


def transfer_summary(found: Sequence[Searched]) -> str:
    """Over all pairs of problems of a group where it was measured: what another problem's winner costs."""
    losses = [
        loss for one in found for other in found
        if one.group == other.group and one is not other and (loss := other.loss(one.winner)) is not None
    ]  # fmt: skip
    if not losses:
        return "No winner was measured on another problem of its group."
    pairs = f"same op, dtype, head size and mask; {len(losses)} pairs measured"
    slower = f"{sum(loss > 1.05 for loss in losses)} pairs more than 5 % slower"
    mean, most = geometric_mean(losses), max(losses)
    return f"Another problem's winner ({pairs}): {mean:.3f} times the own one's time, most {most:.2f}; {slower}."


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def report(found: Sequence[Searched]) -> str:
    """Everything, in Markdown."""
    sections: Mapping[str, str] = {
        "Groups": group_table(found),
        "Winners beside defaults and other trials": worth_table(found),
        "What a winner of one shape costs on another": f"{transfer_summary(found)}\n\n{transfer_tables(found)}",
        "Winners' parameters": parameter_tables(found),
    }
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in sections.items()) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report, or write it. Returns 1 when there is nothing to report."""
    parser = argparse.ArgumentParser(description="what tuning is worth, from recorded searches")
    parser.add_argument("inputs", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("-o", "--output", type=Path, default=None)
    options = parser.parse_args(arguments)
    found = searched((line for path in options.inputs for line in lines_of(path)), options.gpu)
    if not found:
        print(f"no winner on {options.gpu} in these records")
        return 1
    if options.output:
        options.output.write_text(report(found), encoding="utf-8")
    print(report(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
