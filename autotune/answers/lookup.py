"""The best configuration known for a problem: `autotune.best(op="backward", B=4, T=1024)`.

The answer is the first there is of: the `exact` winner; the winner of the `nearest` problem of the same op, dtype,
head size and mask whose configuration is valid for this one; that of another GPU of the same `architecture`; a
template's `default`. Within each, measured times come before estimates, and the user's own before shipped ones.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.answers.best import Best
from autotune.core import settings
from autotune.core.database_files import plain_path
from autotune.core.errors import DeviceMissing, UsageError
from autotune.core.values import Value
from autotune.gpus.spec import DeviceSpec
from autotune.store.reader import Reader, open_reader

if TYPE_CHECKING:
    from autotune.families.catalogue import Families
    from autotune.store.entries import Winners

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
    from autotune.answers.finding import find
    from autotune.ops.registry import get_op

    families, name = _families(op, template, reference)
    families = families.full_precision() if full_precision else families
    return find(winners, families, get_op(name).problem(**fields), _spec(device, winners))


def _families(op: str | None, template: str | Path | None, reference: str | None) -> "tuple[Families, str]":
    from autotune.families.catalogue import Families
    from autotune.families.template import builtin_templates, find_template, load_template, names_file
    from autotune.ops.registry import get_op

    if template is None or not names_file(str(template)):
        name = get_op(op or "forward").name  # before it is taken for the name of a folder
        return Families(builtin_templates(name) if template is None else (find_template(name, str(template)),)), name
    from autotune.families.op_ref import OpRef

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
    from autotune.gpus.known import gpu
    from autotune.gpus.present import present_gpu

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
    from autotune.gpus.identity import parse_device
    from autotune.gpus.present import present_gpu

    asked = device or settings.device()
    meant = parse_device(asked or "cuda")
    present = present_gpu(meant.index)
    if meant.kind == "cuda" and meant.gpu is None:
        if present is not None:
            return present.name, present
        if asked is not None:
            which = f" {meant.index}" if meant.index else ""
            raise DeviceMissing(f"there is no GPU{which} here; name one with --device, such as --device h200")
    name = meant.gpu or settings.target()
    return name, present if present is not None and present.name == name.lower() else None
