"""In which order winners answer for a problem; `autotune.answers.lookup` is the door to it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autotune.answers.best import Answer, Best
from autotune.core.candidate import Candidate
from autotune.core.problem import Problem
from autotune.core.words import format_ms
from autotune.families.catalogue import Families
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from autotune.store.entries import Entry, Neighbour, Winners, place


def find(winners: Winners, families: Families, problem: Problem, spec: DeviceSpec) -> Best:
    """The best known configuration.

    Raises:
        NoFeasibleConfiguration: no template can compute the problem on the device.
    """
    finder = _Finder(winners, families, problem, spec)
    return finder.exact() or finder.nearest() or finder.default()


def distance(asked: Problem, found: Problem, exact: Sequence[str]) -> float:
    """How far two problems are apart: the norm of log2 of the ratios of their lengths and counts.

    Twice the length is as far as half of it. Fields in `exact` do not count: they are equal.
    """
    return math.dist(place(asked, exact), place(found, exact))


class _Finder:
    def __init__(self, winners: Winners, families: Families, problem: Problem, spec: DeviceSpec) -> None:
        self._winners, self._families, self._problem, self._spec = winners, families, problem, spec
        self._exact_fields = get_op(problem.op).exact_fields

    def exact(self) -> Best | None:
        """The winner of this very problem and GPU, if its template is still what was measured.

        If it is not, the fastest of the other measurements by templates as they are now. What no space has, such as a
        value that is not listed in an edited record, is no answer. The constraints are looked at when it is rendered:
        they were kept when it was measured, and cost more than all of a look-up.
        """
        entries = self._winners.of_problem(self._problem, self._spec.compute_capability, self._families.versions)
        for entry in sorted((e for e in entries if e.gpu == self._spec.name), key=_trust):
            current: Entry | None = entry
            remarks: tuple[str, ...] = ()
            if not self._families.is_current(entry.candidate):
                current = self._winners.still_current(entry, self._families.versions)
                remarks = (self._passed_over(entry),)
            if current is not None and self._families.lists(current.candidate):
                return self._answer("exact", current, remarks)
        return None

    def nearest(self) -> Best | None:
        """The nearest problem on this GPU, else the nearest on another one of its architecture."""
        found = self._winners.neighbours(
            self._problem, self._exact_fields, self._spec.compute_capability, self._families.versions
        )
        here = place(self._problem, self._exact_fields)
        ranked = sorted(found, key=lambda n: (n.kind != "measured", math.dist(here, n.place), n.shipped is not None))
        name = self._spec.name
        return self._first("nearest", (n for n in ranked if n.gpu == name)) or self._first(
            "architecture", (n for n in ranked if n.gpu != name)
        )

    def default(self) -> Best:
        """A template's own choice."""
        candidate = self._families.default(self._problem, self._spec)
        return Best(
            answer="default", kind="none", found_ms=None, problem=self._problem, device=self._spec, candidate=candidate,
            remarks=("nothing like it has been tuned: this is the template's default; `autotune search` finds better",),
            template=self._families.get(candidate.template),
        )  # fmt: skip

    def _first(self, answer: Answer, ranked: Iterable[Neighbour]) -> Best | None:
        """The first whose configuration is valid for the problem and the device asked."""
        for neighbour in ranked:
            for entry in self._entries(neighbour):
                if self._families.why_not(entry.candidate, self._problem, self._spec) is None:
                    return self._answer(answer, entry, tuple(self._remarks(entry)))
        return None

    def _entries(self, neighbour: Neighbour) -> Iterator[Entry]:
        """A neighbour's winner; if it is no longer what was measured, first the best that still is."""
        entry = self._winners.entry(neighbour)
        if entry is None:
            return
        if not self._families.is_current(entry.candidate):
            current = self._winners.still_current(entry, self._families.versions)
            if current is not None:
                yield current
        yield entry

    def _remarks(self, entry: Entry) -> Iterator[str]:
        if entry.problem != self._problem:
            yield f"tuned for {entry.problem}"
        if entry.gpu != self._spec.name:
            yield f"tuned on {entry.gpu}, another GPU of the same architecture"
        if not self._families.is_current(entry.candidate):
            yield f"template {entry.candidate.template} has changed since this was {entry.kind}"

    def _passed_over(self, entry: Entry) -> str:
        name = entry.candidate.template
        why = (
            "has changed since (`autotune db recheck` tells whether its machine code has)"
            if self._families.get(name)
            else "is not among those looked at (--template and --full-precision choose)"
        )
        return f"a configuration of {name} was {entry.kind} at {format_ms(entry.ms)} ms, but this template {why}"

    def _answer(self, answer: Answer, entry: Entry, remarks: tuple[str, ...]) -> Best:
        return Best(
            answer=answer, kind=entry.kind, found_ms=entry.ms, problem=self._problem, device=self._spec,
            candidate=self._now(entry.candidate), found=entry.problem, found_on=entry.device, origin=entry.origin,
            measurement_id=entry.measurement_id, driver=entry.driver, compiler=entry.compiler, remarks=remarks,
            template=self._families.get(entry.candidate.template),
        )  # fmt: skip

    def _now(self, candidate: Candidate) -> Candidate:
        """The candidate by the template as it is now."""
        template = self._families.get(candidate.template)
        return candidate if template is None else replace(candidate, template_hash=template.hash)


def _trust(entry: Entry) -> tuple[bool, bool]:
    """Measured before estimated, the user's own before shipped."""
    return entry.kind != "measured", entry.origin != "own"
