"""The best configuration known for a problem: `autotune.best(op="backward", B=4, T=1024)`.

The answer is the first there is of: the `exact` winner; what promises most (`autotune.estimate.fit`) among the winners
of the `nearest` problems on this GPU, or else on another one of the same `architecture`, and the `start`s that the
families list for such problems; a template's `default`. Winners that were measured come before those that were
estimated, and of one problem the user's own before the shipped ones. The head size is never another one;
where values have one of their own, problems in which all have either size count as near.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from autotune.answers.best import Answer, Best, sureness, told
from autotune.answers.failed import Failed
from autotune.answers.looked_at import Wish, changed, looked_at, make_wish, unfulfilled, wished
from autotune.answers.weighing import most_promising
from autotune.core import settings
from autotune.core.arguments import require_flags
from autotune.core.candidate import Candidate
from autotune.core.database_files import as_text, plain_path
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import UsageError
from autotune.core.measurement import TimingKind
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.core.words import format_ms, nearest_round
from autotune.estimate.fit import Known, known_starts
from autotune.families.catalogue import Families
from autotune.families.starts import Start
from autotune.families.user_functions import Function, Named, named
from autotune.gpus import present as here
from autotune.gpus.identity import parse_device
from autotune.gpus.known import gpu
from autotune.gpus.meant import meant_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.op import LONGEST
from autotune.ops.registry import get_op, problem_of
from autotune.store.entries import Entry, Neighbour, Winners, place
from autotune.store.reader import Reader, open_reader

_DATABASES: dict[str, tuple[Reader, Winners]] = {}
_ANSWERS: dict[tuple[Any, ...], tuple[object, Best]] = {}
_MOST_ANSWERS = 4096

_UNVERIFIED = "verified for that problem, not for this one: `autotune.kernel(...).verify()` does it here"

_ALIKE, _AKIN, _STARTS = 8, 4, 6
"""How many winners of the nearest problems of the same kind and of others are weighed, and starts of each family."""

# SQLite connections must not be used on both sides of a fork.
os.register_at_fork(after_in_child=_DATABASES.clear)


def best(  # noqa: PLR0913 - every argument is a choice that the command line offers too
    op: str | None = None,
    *,
    device: str | DeviceSpec | None = None,
    db: str | Path | None = None,
    template: str | Path | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    full_precision: bool = False,
    objective: str = "time",
    max_error: float | None = None,
    **fields: Value,
) -> Best:
    """The best configuration known for a problem.

    Args:
        op: `forward` (the default), `backward`, or the op of `template`.
        device: a GPU's name, `cuda` for the one present, `cpu` for the target of estimates, `h200@400W` for what was
            measured under a limit; by default `AUTOTUNE_DEVICE`, else the GPU present, else `AUTOTUNE_TARGET`.
        db: path or URL of the database; by default `AUTOTUNE_DB`, else the user's.
        template: a family of one's own (a `.cu.j2` file), looked at beside the shipped ones; or the name of a
            shipped family, which alone is then looked at.
        reference: the op's reference, a function or `module:function`, where `template` has its own op and does not.
        inputs: the function that makes its inputs, likewise.
        full_precision: look only at families whose products are those of the dtype's elements (no 3xTF32 for fp32).
        objective: `time`, `energy` or `edp` (energy times time), as far as energies of this very problem are known.
        max_error: the part of the error bound that a winner may use (0.5: half of it).
        fields: of the problem (`B`, `T`, `dtype`, …); the op's defaults for those not given.

    Raises:
        ProblemError: a field that makes no sense.
        UsageError: an unknown GPU or a malformed URL.
        NoFeasibleConfiguration: no template can compute this problem on the device, all that is known has failed for
            it, or nothing on record has such an error.
        DeviceMissing: `cuda` without a GPU.
        StoreError: the database cannot be read, or has another schema version.
    """
    database = _location(db)
    reader, winners = _DATABASES.get(database) or _open(database)
    stamp = reader.stamp()
    asked = (op, device, database, full_precision, *fields.items(), *map(type, fields.values()))  # 1 == True
    key = (*asked, objective, max_error, os.environ.get("AUTOTUNE_DEVICE"), os.environ.get("AUTOTUNE_TARGET"))
    try:
        known = _ANSWERS.get(key) if template is reference is inputs is None else None
    except TypeError:  # a value that cannot be hashed is no value of a field: the op says so below
        known = None
    if known is not None and known[0] == stamp:
        return known[1]
    finder = _finder(winners, op, device, template, reference, inputs, full_precision, fields)
    wish = make_wish(objective, max_error, parse_device(device_name(device)).cap)
    answer = finder.usual() if wish.plain else finder.wished(wish)
    if template is None:
        _remember(key, stamp, answer)
    return answer


def best_of_lengths(
    op: str | None = None,
    *,
    device: str | None = None,
    db: str | Path | None = None,
    template: str | Path | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    full_precision: bool = False,
    **fields: Value,
) -> Best:
    """As `best`, for lengths that change from call to call: a weighing of all that is known takes some milliseconds.

    Lengths that are no winner's are answered as those next to them are that have three binary digits, rendered for the
    lengths asked. So a sequence that grows by one token is not weighed anew, nor does its configuration change, each
    time.

    Raises:
        AutotuneError: as `best`.
    """

    def ask(asked: Mapping[str, Value]) -> Best:
        return best(
            op, device=device, db=db, template=template, reference=reference, inputs=inputs,
            full_precision=full_precision, objective="time", max_error=None, **asked,
        )  # fmt: skip

    database = _location(db)
    _, winners = _DATABASES.get(database) or _open(database)
    finder = _finder(winners, op, device, template, reference, inputs, full_precision, fields)
    lengths = [field.name for field in get_op(finder.problem.op).fields if field.maximum == LONGEST]
    near = finder.problem.replace(**{name: nearest_round(finder.problem.integer(name)) for name in lengths})
    exact = finder.exact()
    if exact is not None or near == finder.problem:
        return exact or ask(fields)
    found = ask(near.fields)
    if finder.why_not(found.candidate) is not None:
        return ask(fields)
    answer: Answer = "nearest" if found.answer == "exact" else found.answer
    return replace(found, problem=finder.problem, answer=answer, remarks=(*found.remarks, f"as for {near}"))


def _finder(
    winners: Winners, op: str | None, device: str | DeviceSpec | None, template: str | Path | None,
    reference: Named | Function | None, inputs: Named | Function | None, full_precision: bool,
    fields: Mapping[str, Value],
) -> "_Finder":  # fmt: skip
    require_flags(full_precision=full_precision)
    families, name = looked_at(op, template, named(reference), named(inputs, "inputs"))
    families = families.full_precision() if full_precision else families
    return _Finder(winners, families, get_op(name).problem(**fields), _device_spec(device, winners))


def _location(db: str | Path | None) -> str:
    """The database meant, as text that stays the same when the working folder changes."""
    text = settings.database() if db is None else as_text(db)
    return text if text[:1] == "/" or "://" in text or not text.strip() else str(plain_path(text))


def _open(database: str) -> tuple[Reader, Winners]:
    reader = open_reader(database)
    opened = _DATABASES[database] = reader, Winners(reader)
    return opened


def _remember(key: tuple[Any, ...], stamp: object, answer: Best) -> None:
    if len(_ANSWERS) >= _MOST_ANSWERS:
        _ANSWERS.clear()
    with suppress(TypeError):
        _ANSWERS[key] = (stamp, answer)


def device_spec(device: str | None, db: str | Path | None) -> DeviceSpec:
    """The GPU that a look-up is about, as `best` takes it.

    Raises:
        AutotuneError: as `best` does for a device or a database.
    """
    database = _location(db)
    return _device_spec(device, (_DATABASES.get(database) or _open(database))[1])


def device_name(device: str | DeviceSpec | None) -> str:
    """The device meant, as users call it."""
    return device.name if isinstance(device, DeviceSpec) else device or settings.device() or "cuda"


def _device_spec(device: str | DeviceSpec | None, winners: Winners) -> DeviceSpec:
    if isinstance(device, DeviceSpec):
        return device
    name, present = meant_gpu(device)
    if present is not None:
        return present
    try:
        spec = gpu(name)
    except UsageError:
        known = winners.device_spec(name.lower())
        if known is None:
            raise
        return known
    present = here.present_gpu()
    return present if present is not None and present.name == spec.name else spec


class _Finder:
    """Looks for an answer in the order of preference."""

    def __init__(self, winners: Winners, families: Families, problem: Problem, spec: DeviceSpec) -> None:
        self._winners, self._families, self.problem, self._spec = winners, families, problem, spec
        self._exact_fields, self._failed = get_op(problem.op).exact_fields, Failed(winners, problem, spec)
        self._tuned: dict[Candidate, Candidate] = {}  # of what answers with a parameter at its default, what won

    def why_not(self, candidate: Candidate) -> str | None:
        """Why a candidate cannot compute the problem, or did not when it was tried; None when it can."""
        return self._families.why_not(candidate, self.problem, self._spec) or self._failed.why(candidate)

    def usual(self) -> Best:
        """The first answer that there is."""
        return self.exact() or told(self.fitting() or self.default())

    def wished(self, wish: Wish) -> Best:
        """What fulfils a wish; where nothing on record does the usual answer, which says so, but no larger error.

        Raises:
            NoFeasibleConfiguration: nothing on record has an error as small as is asked.
        """
        entry = wished(self._winners, self._families, self.problem, self._spec, wish)
        if entry is not None:
            return self._answer("exact", entry, ())
        if wish.max_error is not None:
            raise unfulfilled(self.problem, self._spec, wish)
        found = self.usual()
        remark = f"nothing on record of this problem has {wish.words}: this is the answer by time without a limit"
        answer: Answer = "nearest" if wish.cap and found.answer == "exact" else found.answer
        return replace(found, answer=answer, remarks=(*found.remarks, remark))

    def exact(self) -> Best | None:
        """The winner of this very problem and GPU, if its template is still what was measured.

        If it is not, the fastest of the other measurements by templates as they are now. What no space has, such as a
        value that is not listed in an edited record, is no answer. The constraints are looked at when it is rendered:
        they were kept when it was measured, and cost more than all of a look-up.
        """
        entries = self._winners.of_problem(self.problem, self._spec.compute_capability, self._families.versions)
        mine = [entry for entry in entries if entry.gpu == self._spec.name and not entry.cap]
        for entry in sorted(mine, key=lambda entry: (entry.kind != "measured", entry.origin != "own")):
            current: Entry | None = entry
            remarks: tuple[str, ...] = ()
            if not self._families.is_current(entry.candidate):
                current = self._winners.still_current(entry, self._families.versions)
                remarks = (self._passed_over(entry),)
            if current is not None and self._families.lists(current.candidate):
                return self._answer("exact", current, remarks)
        return None

    def fitting(self) -> Best | None:
        """The most promising of what is known of problems like this one; None where no time is known of any."""
        near = self._near(here=True) or self._near(here=False)
        known: dict[Known, tuple[Entry | None, Start | None]] = {self._known(entry): (entry, None) for entry in near}
        starts = {start: (None, said) for start, said in self._starts() if start not in known}
        known = self._failed.left_out({**known, **starts})
        if not any(one.listed or one.ms is not None for one in known):
            return None
        templates = {template.name: template for template in self._families.templates}
        best, base = most_promising(known, templates, self.problem, self._spec, self._failed.never)
        entry, start = known[base]
        changes = changed(base.candidate, best.known.candidate, "promises less here")
        if entry is not None:
            answer: Answer = "nearest" if entry.gpu == self._spec.name else "architecture"
            found = self._answer(answer, entry, tuple(self._remarks(entry, changes)))
            if changes:
                found = replace(found, candidate=best.known.candidate, measurement_id=None)
        elif start is not None:
            found = self._started(best.known.candidate, start, changes)
        else:
            found = self._defaulted(best.known.candidate)
        return replace(found, expected_ms=best.likely_ms, sure=sureness(best))

    def _near(self, *, here: bool) -> list[Entry]:
        """Winners of the nearest problems that are valid for this one: those of the same kind, of another mask, layout
        or dtype of the same width, or with heads whose tiles are as wide. Estimates only where nothing was measured."""
        lengths = [field.name for field in get_op(self.problem.op).fields if field.kind == "int"]
        sizes = tuple(name for name in self._exact_fields if name in lengths)
        place_here = place(self.problem, self._exact_fields)
        found: dict[TimingKind, dict[Problem, Entry]] = {"measured": {}, "estimated": {}}

        def order(n: Neighbour) -> tuple[bool, float, bool]:
            return n.kind != "measured", math.dist(place_here, n.place), n.shipped is not None

        kinds = ((self._exact_fields, _ALIKE), (sizes, _AKIN))
        for (exact, most), asked in product(kinds, (self.problem, *get_op(self.problem.op).akin(self.problem))):
            neighbours = self._winners.neighbours(asked, exact, self._spec.compute_capability, self._families.versions)
            of_gpu = (n for n in sorted(neighbours, key=order) if (n.gpu == self._spec.name) is here)
            for entry in islice(filter(None, map(self._valid, of_gpu)), most):
                found[entry.kind].setdefault(entry.problem, entry)
        return list((found["measured"] or found["estimated"]).values())

    def _valid(self, neighbour: Neighbour) -> Entry | None:
        """A neighbour's winner, or what stands for it, if it can compute this problem, perhaps with a default."""
        for entry in self._entries(neighbour):
            size, mine = (numpy_dtype(p.dtype).itemsize for p in (entry.problem, self.problem))
            mended = self._families.mended(entry.candidate, self.problem, self._spec) if size == mine else None
            if mended == entry.candidate:
                return entry
            if mended is not None:
                self._tuned[mended] = entry.candidate
                return replace(entry, candidate=mended, measurement_id=None)
        return None

    def _starts(self) -> Iterator[tuple[Known, Start | None]]:
        """The first starts of each family that are valid here, and its default."""
        for template in self._families.templates:
            proven = not (template.front.historical or template.unproven)
            if not proven or template.why_unsupported(self.problem, self._spec) is not None:
                continue
            yield from known_starts(template, self.problem, self._spec, _STARTS)

    def _known(self, entry: Entry) -> Known:
        """A neighbour as a contender, by its template as it is now."""
        mine, version = entry.candidate, self._families[entry.candidate.template].hash
        tuned, mine = (replace(one, template_hash=version) for one in (self._tuned.get(mine, mine), mine))
        return Known(mine, entry.problem, entry.ms, like=None if tuned == mine else tuned)

    def default(self) -> Best:
        """A template's own choice; where that has failed here, another family's, or a start."""
        choices = chain([self._families.default(self.problem, self._spec)], (k.candidate for k, _ in self._starts()))
        return self._defaulted(self._failed.first_right(choices))

    def _defaulted(self, candidate: Candidate) -> Best:
        remark = "nothing like it has been tuned: this is the template's default; `autotune search` finds better"
        return self._untimed("default", candidate, (remark,))

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

    def _remarks(self, entry: Entry, changes: str) -> Iterator[str]:
        mine = entry.candidate
        if entry.problem != self.problem:
            mended = changed(self._tuned.get(mine, mine), mine, "cannot be here")
            yield f"tuned for {entry.problem}{mended}{changes}"
        if entry.gpu != self._spec.name:
            yield f"tuned on {entry.gpu}, another GPU of the same architecture"
        if not self._families.is_current(entry.candidate):
            yield f"template {entry.candidate.template} has changed since this was {entry.kind}"
        if entry.problem != self.problem:
            yield _UNVERIFIED

    def _passed_over(self, entry: Entry) -> str:
        name = entry.candidate.template
        why = (
            "has changed since (`autotune db recheck` tells whether its machine code has)"
            if self._families.get(name)
            else "is not among those looked at (--template and --full-precision choose)"
        )
        return f"a configuration of {name} was {entry.kind} at {format_ms(entry.ms)} ms, but this template {why}"

    def _started(self, candidate: Candidate, start: Start, changes: str) -> Best:
        """A family's start as an answer."""
        problem = problem_of(start.problem)
        remark = f"a start of {candidate.template} for `{start.when.text}`, from {problem} on {start.device}{changes}"
        return self._untimed("start", candidate, (remark,) if problem == self.problem else (remark, _UNVERIFIED))

    def _untimed(self, answer: Answer, candidate: Candidate, remarks: tuple[str, ...]) -> Best:
        return Best(
            answer=answer, kind="none", found_ms=None, problem=self.problem, device=self._spec, candidate=candidate,
            remarks=remarks, template=self._families[candidate.template],
        )  # fmt: skip

    def _answer(self, answer: Answer, entry: Entry, remarks: tuple[str, ...]) -> Best:
        """An entry as an answer, its candidate by the template as it is now."""
        template = self._families[entry.candidate.template]
        return Best(
            answer=answer, kind=entry.kind, found_ms=entry.ms, problem=self.problem, device=self._spec,
            candidate=replace(entry.candidate, template_hash=template.hash), template=template, found=entry.problem,
            found_on=entry.device, origin=entry.origin, measurement_id=entry.measurement_id, driver=entry.driver,
            compiler=entry.compiler, remarks=remarks, energy_mj=entry.energy_mj, error=entry.error,
        )  # fmt: skip
