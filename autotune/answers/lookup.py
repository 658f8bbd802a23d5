"""The best configuration known for a problem: `autotune.best(op="backward", B=4, T=1024)`.

The answer is the first there is of: the `exact` winner; the winner of the `nearest` problem of the same op, dtype,
head size and mask whose configuration is valid for this one; that of another GPU of the same `architecture`; a
template's `default`. Within each, measured times come before estimates, and the user's own before shipped ones.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.answers.best import Answer, Best
from autotune.core import settings
from autotune.core.database_files import plain_path
from autotune.core.errors import UsageError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.core.words import format_ms
from autotune.families import template as templates
from autotune.families.catalogue import Families
from autotune.families.op_ref import load_own
from autotune.gpus import present as here
from autotune.gpus.known import gpu
from autotune.gpus.meant import meant_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from autotune.store.entries import Entry, Neighbour, Winners, place
from autotune.store.reader import Reader, open_reader

_DATABASES: dict[str, tuple[Reader, Winners]] = {}
_ANSWERS: dict[tuple[Any, ...], tuple[object, Best]] = {}
_MOST_ANSWERS = 4096

# SQLite connections must not be used on both sides of a fork.
os.register_at_fork(after_in_child=_DATABASES.clear)


def best(
    op: str | None = None,
    *,
    device: str | DeviceSpec | None = None,
    db: str | Path | None = None,
    template: str | Path | None = None,
    reference: str | None = None,
    full_precision: bool = False,
    **fields: Value,
) -> Best:
    """The best configuration known for a problem.

    Args:
        op: `forward` (the default), `backward`, or the op of `template`.
        device: a GPU's name, `cuda` for the one present, `cpu` for the target of estimates; by default
            `AUTOTUNE_DEVICE`, else the GPU present, else `AUTOTUNE_TARGET`.
        db: path or URL of the database; by default `AUTOTUNE_DB`, else the user's.
        template: a family of one's own (a `.cu.j2` file), looked at beside the shipped ones; or the name of a
            shipped family, which alone is then looked at.
        reference: the op's reference, `module:function`, where `template` declares its own op.
        full_precision: look only at families whose products are those of the dtype's elements (no 3xTF32 for fp32).
        fields: of the problem (`B`, `T`, `dtype`, …); the op's defaults for those not given.

    Raises:
        ProblemError: a field that makes no sense.
        UsageError: an unknown GPU or a malformed URL.
        NoFeasibleConfiguration: no template can compute this problem on the device.
        DeviceMissing: `cuda` without a GPU.
        StoreError: the database cannot be read, or has another schema version.
    """
    database = _location(db)
    reader, winners = _DATABASES.get(database) or _open(database)
    stamp = reader.stamp()
    asked = (op, device, database, os.environ.get("AUTOTUNE_DEVICE"), os.environ.get("AUTOTUNE_TARGET"))
    key = (*asked, full_precision, *fields.items())
    try:
        known = _ANSWERS.get(key) if template is None else None
    except TypeError:  # a value that cannot be hashed is no value of a field: the op says so below
        known = None
    if known is not None and known[0] == stamp:
        return known[1]
    families, name = _families(op, template, reference)
    families = families.full_precision() if full_precision else families
    finder = _Finder(winners, families, get_op(name).problem(**fields), _device_spec(device, winners))
    answer = finder.exact() or finder.nearest() or finder.default()
    if template is None:
        _remember(key, stamp, answer)
    return answer


def _location(db: str | Path | None) -> str:
    """The database meant, as text that stays the same when the working folder changes."""
    text = settings.database() if db is None else str(db)
    return text if text[:1] == "/" or "://" in text or not text.strip() else str(plain_path(text))


def _open(database: str) -> tuple[Reader, Winners]:
    reader = open_reader(database)
    opened = _DATABASES[database] = reader, Winners(reader)
    return opened


def _remember(key: tuple[Any, ...], stamp: object, answer: Best) -> None:
    try:
        if len(_ANSWERS) >= _MOST_ANSWERS:
            _ANSWERS.clear()
        _ANSWERS[key] = (stamp, answer)
    except TypeError:
        pass


def _families(op: str | None, template: str | Path | None, reference: str | None) -> tuple[Families, str]:
    """What may answer, and for which op."""
    if template is None or not templates.names_file(str(template)):
        name = get_op(op or "forward").name  # before it is taken for the name of a folder
        if template is None:
            return Families(templates.builtin_templates(name)), name
        return Families((templates.find_template(name, str(template)),)), name
    path = Path(template)
    computed = templates.load_template(path).op
    if op not in {None, computed}:
        raise UsageError(f"the template {path} computes {computed!r}, not {op!r}")
    own = load_own(path, reference)
    shipped = tuple(other for other in templates.builtin_templates(own.op) if other.name != own.name)
    return Families((own, *shipped)), own.op


def device_spec(device: str | None, db: str | Path | None) -> DeviceSpec:
    """The GPU that a look-up is about, as `best` takes it.

    Raises:
        AutotuneError: as `best` does for a device or a database.
    """
    database = _location(db)
    return _device_spec(device, (_DATABASES.get(database) or _open(database))[1])


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
        self._winners, self._families, self._problem, self._spec = winners, families, problem, spec
        self._exact_fields = get_op(problem.op).exact_fields

    def exact(self) -> Best | None:
        """The winner of this very problem and GPU, if its template is still what was measured.

        If it is not, the fastest of the other measurements by templates as they are now. What no space has, such as a
        value that is not listed in an edited record, is no answer. The constraints are looked at when it is rendered:
        they were kept when it was measured, and cost more than all of a look-up.
        """
        entries = self._winners.of_problem(self._problem, self._spec.compute_capability, self._families.versions)
        mine = [entry for entry in entries if entry.gpu == self._spec.name]
        for entry in sorted(mine, key=lambda entry: (entry.kind != "measured", entry.origin != "own")):
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
            template=self._families[candidate.template],
        )  # fmt: skip

    def _first(self, answer: Answer, ranked: Iterable[Neighbour]) -> Best | None:
        """The first whose configuration is valid for the problem and the device asked."""
        for neighbour in ranked:
            for entry in self._entries(neighbour):
                if self._families.why_not(entry.candidate, self._problem, self._spec) is None:
                    return self._answer(answer, entry, (*self._remarks(entry), *self._unverified(entry)))
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

    def _unverified(self, entry: Entry) -> Iterator[str]:
        if entry.problem != self._problem:
            yield "verified for that problem, not for this one: `autotune.kernel(...).verify()` does it here"

    def _passed_over(self, entry: Entry) -> str:
        name = entry.candidate.template
        why = (
            "has changed since (`autotune db recheck` tells whether its machine code has)"
            if self._families.get(name)
            else "is not among those looked at (--template and --full-precision choose)"
        )
        return f"a configuration of {name} was {entry.kind} at {format_ms(entry.ms)} ms, but this template {why}"

    def _answer(self, answer: Answer, entry: Entry, remarks: tuple[str, ...]) -> Best:
        """An entry as an answer, its candidate by the template as it is now."""
        template = self._families[entry.candidate.template]
        return Best(
            answer=answer, kind=entry.kind, found_ms=entry.ms, problem=self._problem, device=self._spec,
            candidate=replace(entry.candidate, template_hash=template.hash), template=template, found=entry.problem,
            found_on=entry.device, origin=entry.origin, measurement_id=entry.measurement_id, driver=entry.driver,
            compiler=entry.compiler, remarks=remarks,
        )  # fmt: skip
