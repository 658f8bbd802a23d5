"""The searches that a climb makes: one for each part of each version, made once where versions share it."""

from dataclasses import dataclass

from autotune.core.problem import Problem
from autotune.families.narrow import narrowed
from autotune.families.template import find_template
from autotune.ladder.parts import Part
from autotune.ladder.versions import Ladder, Version
from autotune.tuning.choose import Subject, choose_subject

SKIPPED = {
    "16-bit": "it is about 16-bit elements, and fp32 was asked for",
    "32-bit": "it is about fp32, and 16 bits were asked for",
}
"""Why a version is left out, by what it is about."""


@dataclass(frozen=True)
class Station:
    """A search of the climb: one part, for one problem. Versions that need the same one share it."""

    part: Part
    problem: Problem

    @property
    def key(self) -> str:
        """The same for the same search."""
        return f"{self.problem.key} {self.part.family} {sorted(self.part.pins.items())}"

    @property
    def subject(self) -> Subject:
        """The families that compete."""
        if self.part.family is None:
            return choose_subject(self.problem.op)
        subject = choose_subject(self.problem.op, (self.part.family,))
        template = narrowed(find_template(self.problem.op, self.part.family), self.part.pins)
        return Subject(subject.op, subject.source, (template,), self.key)


def version_problem(version: Version, asked: Problem) -> Problem | None:
    """The problem in the element type that the version computes in; None where that is not what was asked for."""
    if version.element in SKIPPED:
        return asked if (asked.dtype == "fp32") == (version.element == "32-bit") else None
    return asked.replace(dtype="fp32") if version.element == "fp32" else asked


def stations_of(version: Version, problem: Problem) -> tuple[Station, ...]:
    """The version's own kernel, then those it shares with others."""
    return tuple(Station(part, part.problem(problem)) for part in (version.own, *version.shared))


def stations(ladder: Ladder, asked: Problem) -> list[tuple[Station, str]]:
    """Every search once, with the name of the first version that needs it.

    What versions share comes first, so that a climb that is broken off has whole versions; a problem's searches come
    one after another, because another problem takes new references.
    """
    found: dict[str, tuple[Station, str]] = {}
    for version in ladder.versions:
        problem = version_problem(version, asked)
        for station in () if problem is None else stations_of(version, problem):
            found.setdefault(station.key, (station, version.name))
    return _ordered(list(found.values()))


def _ordered(found: list[tuple[Station, str]]) -> list[tuple[Station, str]]:
    first: dict[str, tuple[bool, int]] = {}
    for at, (station, _) in enumerate(found):
        first.setdefault(station.problem.key, (station.part.family is not None, at))
    return sorted(found, key=lambda item: first[item[0].problem.key])
