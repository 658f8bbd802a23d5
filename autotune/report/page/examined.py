"""What is found out about a section's winner when its page is made: its source, the checker's lines, modelled work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.checker.check import Checked, check
from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError
from autotune.estimate.examine import examine_alone
from autotune.estimate.model import Estimate
from autotune.families.op_ref import OpRef
from autotune.families.render import render
from autotune.families.template import Template
from autotune.report.page.sections import Families, Section
from autotune.store.records import StoredMeasurement
from autotune.trace.remote import TracingProcess
from autotune.trace.task import TraceTask

MOST_FAMILIES = 4
"""Families whose fastest candidate is traced for the roofline, the winner's among them."""


@dataclass(frozen=True)
class Source:
    """The winner's rendered source; or, in its place, why it is not shown."""

    code: str = ""
    why: str = ""


@dataclass(frozen=True)
class Examined:
    """`estimates`: modelled work by candidate. `checked` is None, and `why` says so, where the checker did not run."""

    checked: Checked | None = None
    why: str = ""
    estimates: Mapping[Candidate, Estimate] = field(default_factory=dict)


def source_of(section: Section, families: Families) -> Source:
    """The source that the winner's record is of: another text, be it of the same family, is not shown for it."""
    winner = section.winner
    if winner is None:
        return Source(why="there is no winner")
    template = families.find(winner)
    if template is None:
        return Source(
            why=f"the family {winner.candidate.template} has changed since (version {winner.candidate.template_hash}), "
            "or is a file of your own, which --template names"
        )
    try:
        source = render(template, section.problem, winner.candidate.config, section.identity.spec)
    except AutotuneError as error:
        return Source(why=str(error))
    if source.hash != winner.source_hash:
        return Source(
            why=f"today's headers make another source ({source.hash}) than was measured ({winner.source_hash})"
        )
    return Source(code=source.code)


def examine_section(section: Section, families: Families, db: str | None, say: Callable[[str], None]) -> Examined:
    """Trace the winner on the emulator, and the fastest of other families for their work. Takes seconds each."""
    winner = section.winner
    if winner is None or section.op is None:
        return Examined(why="there is no winner" if winner is None else f"the op {section.problem.op} is not at hand")
    template = families.find(winner)
    if template is None:
        return Examined(why=f"the family {winner.candidate.template} is not at hand as it was")
    say(f"checking {winner.candidate.template} for {section.problem}")
    fields: dict[str, Any] = section.problem.fields
    try:
        own = template is families.own
        checked = check(
            None if own else section.problem.op, template=template.path if own else template.name,
            params=winner.candidate.config, device=section.identity.spec.name, db=db, **fields,
        )  # fmt: skip
    except AutotuneError as error:
        return Examined(why=str(error))
    estimates = {} if checked.estimated is None else {winner.candidate: checked.estimated.estimate}
    with TracingProcess() as process:
        for record in _others(section, winner)[: MOST_FAMILIES - 1]:
            other = families.find(record)
            if other is not None:
                try:
                    estimates[record.candidate] = examine_alone(_task(section, other, record), process.trace).estimate
                except AutotuneError:  # it has no point more on the roofline
                    continue
    return Examined(checked, checked.error, estimates)


def _others(section: Section, winner: StoredMeasurement) -> list[StoredMeasurement]:
    """The fastest trial of each other family."""
    found: dict[str, StoredMeasurement] = {}
    for record in sorted(section.timed, key=lambda record: record.measurement.ms or 0.0):
        found.setdefault(record.candidate.template, record)
    found.pop(winner.candidate.template, None)
    return list(found.values())


def _task(section: Section, template: Template, record: StoredMeasurement) -> TraceTask:
    spec = section.identity.spec
    return TraceTask(OpRef(section.problem.op), template.path, section.problem, record.candidate.values, spec)
