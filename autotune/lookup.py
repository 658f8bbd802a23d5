"""The best configuration known for a problem: `autotune.best(op="backward", B=4, T=1024)`.

The answer is the first there is of: the `exact` winner; the winner of the `nearest` problem of the same op, dtype,
head size and mask whose configuration is valid for this one; that of another GPU of the same `architecture`; a
template's `default`. Within each, measured times come before estimates, and the user's own before shipped ones.
"""

import os
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autotune import settings
from autotune.candidate import Candidate
from autotune.devices.spec import DeviceSpec
from autotune.errors import DeviceMissing, UsageError
from autotune.problem import Problem
from autotune.store.files import plain_path
from autotune.store.reader import Reader, open_reader
from autotune.values import Value

if TYPE_CHECKING:
    from autotune.families import Families
    from autotune.plan import LaunchPlan
    from autotune.source import KernelSource
    from autotune.store.entries import Winners
    from autotune.template import Template
    from autotune.traits import Traits

Answer = Literal["exact", "nearest", "architecture", "default"]


@dataclass(frozen=True)
class Best:
    """The best configuration known. `found_ms` is the time of `found` on `found_on`.

    `ms` is the time of the problem asked on the device asked: None unless the answer is exact.
    `source` and `plan` are rendered for the problem asked, on the device asked, when first read.
    """

    answer: Answer
    kind: Literal["measured", "estimated", "none"]
    found_ms: float | None
    problem: Problem
    device: DeviceSpec
    candidate: Candidate
    found: Problem | None = None  # the problem that was tuned; None for a default
    found_on: str | None = None  # the device, as records name it: "h200", "cpu:h200"
    origin: Literal["own", "shipped", "template"] = "template"
    measurement_id: int | None = None  # in the user's database
    driver: str = ""  # what it was measured with; empty where unknown or not involved
    compiler: str = ""
    remarks: tuple[str, ...] = ()
    template: "Template | None" = field(default=None, repr=False, compare=False)

    @property
    def config(self) -> dict[str, Value]:
        """Parameter values by name."""
        return self.candidate.config

    @property
    def ms(self) -> float | None:
        """Milliseconds of this very problem on this very device; None where that has not been timed."""
        return self.found_ms if self.answer == "exact" else None

    @property
    def found_for(self) -> str:
        """What `found_ms` is the time of, where that is another problem or GPU than those asked; else empty."""
        if self.found is None or self.answer == "exact":
            return ""
        if self.found != self.problem:
            return f"for {self.found}, the nearest problem"
        return "for this problem" + ("" if self.answer == "architecture" else ", by another version of the template")

    @cached_property
    def source(self) -> "KernelSource":
        """The kernels, rendered for the problem and the device asked.

        Raises:
            UsageError: the configuration that a database has is not valid for them.
        """
        from autotune.render import render
        from autotune.space import Space

        assert self.template is not None  # only tests make one without
        why = Space(self.template, self.problem, self.device).why_not(self.config)
        if why is not None:
            raise UsageError(f"the record of {self.candidate} is not valid: {why}; name another database")
        return render(self.template, self.problem, self.config, self.device)

    @property
    def plan(self) -> "LaunchPlan":
        """Buffers and launches for the problem asked."""
        return self.source.plan

    @cached_property
    def traits(self) -> "Traits":
        """How the candidate multiplies, and whether repeats give identical bits."""
        from autotune.traits import traits_of

        assert self.template is not None
        return traits_of(self.template, self.problem, self.config, self.device)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What to know about this answer, one sentence each; asks for this machine's driver and compiler."""
        from autotune.environment import differences, older_estimate

        if self.kind == "estimated":
            return (*self.remarks, *older_estimate(self.driver), *differences("", self.compiler))
        return (*self.remarks, *differences(self.driver, self.compiler))

    def to_json(self, *, source: bool = True, plan: bool = True) -> dict[str, Any]:
        """Plain data, with the launch plan and the source where they are wanted."""
        return {
            "answer": self.answer,
            "kind": self.kind,
            "ms": self.ms,
            "found_ms": self.found_ms,
            "problem": self.problem.to_json(),
            "device": self.device.name,
            "template": self.candidate.template,
            "template_hash": self.candidate.template_hash,
            "config": self.config,
            **self.traits.to_json(),
            "found": None if self.found is None else self.found.to_json(),
            "found_on": self.found_on,
            "origin": self.origin,
            "measurement_id": self.measurement_id,
            "driver": self.driver,
            "compiler": self.compiler,
            "notes": list(self.notes),
            "source_hash": self.source.hash,
            **({"plan": asdict(self.plan)} if plan else {}),
            **({"source": self.source.code} if source else {}),
        }


_DATABASES: "dict[str, tuple[Reader, Winners]]" = {}
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
    answer = _look_up(op, fields, device, winners, template, reference, full_precision)
    if template is None:
        _remember(key, stamp, answer)
    return answer


def _location(db: str | Path | None) -> str:
    """The database meant, as text that stays the same when the working folder changes."""
    text = settings.database() if db is None else str(db)
    return text if text[:1] == "/" or "://" in text or not text.strip() else str(plain_path(text))


def _open(database: str) -> "tuple[Reader, Winners]":
    from autotune.store.entries import Winners

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


def _look_up(
    op: str | None,
    fields: dict[str, Value],
    device: str | DeviceSpec | None,
    winners: "Winners",
    template: str | Path | None,
    reference: str | None,
    full_precision: bool,
) -> Best:
    from autotune.finding import find
    from autotune.ops.registry import get_op

    families, name = _families(op, template, reference)
    families = families.full_precision() if full_precision else families
    return find(winners, families, get_op(name).problem(**fields), _spec(device, winners))


def _families(op: str | None, template: str | Path | None, reference: str | None) -> "tuple[Families, str]":
    from autotune.families import Families
    from autotune.ops.registry import get_op
    from autotune.template import builtin_templates, find_template, load_template, names_file

    if template is None or not names_file(str(template)):
        name = get_op(op or "forward").name  # before it is taken for the name of a folder
        return Families(builtin_templates(name) if template is None else (find_template(name, str(template)),)), name
    from autotune.ops.locate import OpRef

    path = Path(template)
    own = load_template(path)
    if op not in {None, own.op}:
        raise UsageError(f"the template {path} computes {own.op!r}, not {op!r}")
    own = replace(own, reference=OpRef(own.op, path, reference).resolve().version)
    shipped = tuple(other for other in builtin_templates(own.op) if other.name != own.name)
    return Families((own, *shipped)), own.op


def _spec(device: str | DeviceSpec | None, winners: "Winners") -> DeviceSpec:
    if isinstance(device, DeviceSpec):
        return device
    from autotune.devices.detect import present_gpu
    from autotune.devices.gpus import gpu

    name, present = _device_name(device)
    if present is not None:
        return present
    try:
        spec = gpu(name)
        here = present_gpu()
        return here if here is not None and here.name == spec.name else spec
    except UsageError:
        known = winners.device_spec(name.lower())
        if known is None:
            raise
        return known


def usual_gpu() -> str | None:
    """Name of the GPU that look-ups are about where none is named; None where that is `cuda` and there is none."""
    try:
        name, present = _device_name(None)
    except DeviceMissing:
        return None
    return name.lower() if present is None else present.name


def _device_name(device: str | None) -> tuple[str, DeviceSpec | None]:
    """The name of the GPU meant, and its figures as the driver has them if it is present."""
    from autotune.devices.detect import present_gpu

    name = device or settings.device()
    here = re.fullmatch(r"cuda(?::(\d+))?", name or "cuda")
    present = present_gpu(int(here.group(1) or 0)) if here else present_gpu()
    if here and present is not None:
        return present.name, present
    if here and name is not None:
        which = f" {here[1]}" if here[1] else ""
        raise DeviceMissing(f"there is no GPU{which} here; name one with --device, such as --device h200")
    if name in {None, "cpu"}:
        name = settings.target()
    name = str(name).removeprefix("cpu:")
    return name, present if present is not None and present.name == name.lower() else None
