"""Standalone `.cu` files: kernels, launcher, check and benchmark in one file that needs nvcc and nothing else.

`autotune.export(op="backward", T=1024, output="backward.cu")` looks the best configuration up and writes it out.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.answers.best import Best
from autotune.answers.export_text import compile_line, export_text, has_main
from autotune.answers.lookup import best
from autotune.core.errors import AutotuneError, UsageError
from autotune.core.files import replacing
from autotune.core.values import Value
from autotune.families.user_functions import Function, Named
from autotune.gpus.spec import DeviceSpec


@dataclass(frozen=True)
class Exported:
    """What was written, and what is known of it.

    `ms` is the time of this problem on this device, None where that is not known; `found_ms` is the time of what the
    configuration was tuned for, and `found_for` says what that is where it is something else.
    """

    path: str
    op: str
    problem: dict[str, Value]
    device: str
    template: str
    config: dict[str, Value]
    arithmetic: str
    deterministic: bool
    answer: str  # exact, nearest, architecture or default
    kind: str  # measured, estimated or none
    ms: float | None
    found_ms: float | None
    found_for: str
    source_hash: str
    main: bool
    compile: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def export(  # noqa: PLR0913 - as `autotune.best`
    op: str | None = None,
    *,
    output: str | Path | None = None,
    main: bool = True,
    device: str | DeviceSpec | None = None,
    db: str | Path | None = None,
    template: str | Path | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    full_precision: bool = False,
    **fields: Value,
) -> Exported:
    """Write the best configuration known for a problem as one `.cu` file.

    Args:
        op: `forward` (the default), `backward`, or the op of `template`.
        output: the file, replaced if it exists; by default the op's name with `.cu` in the working folder.
        main: also a `main()` that checks and times; attention has one, other ops have no C++ reference.
        device: as for `autotune.best`.
        db: as for `autotune.best`.
        template: as for `autotune.best`.
        reference: as for `autotune.best`.
        inputs: as for `autotune.best`.
        full_precision: as for `autotune.best`.
        fields: of the problem.

    Raises:
        UsageError: the file's folder does not exist, or the name is that of a folder.
        AutotuneError: the file cannot be written; or what `autotune.best` raises.
    """
    found = best(
        op, device=device, db=db, template=template, reference=reference, inputs=inputs,
        full_precision=full_precision, **fields,
    )  # fmt: skip
    path = Path(output) if output is not None else Path(f"{found.problem.op}.cu")
    if not path.name.isprintable():  # it stands in a comment of the file
        raise UsageError(f"the file's name {path.name!r} has characters that cannot be printed; write another one")
    notes = list(found.notes)
    if main and not has_main(found.problem.op):
        notes.append(f"there is no C++ reference for {found.problem.op}, so the file has the launcher and no main()")
        main = False
    _write(path, export_text(found, path.name, main))
    return _exported(found, path, main, tuple(notes))


def _exported(found: Best, path: Path, main: bool, notes: tuple[str, ...]) -> Exported:
    return Exported(
        path=str(path), op=found.problem.op, problem=found.problem.fields, device=found.device.name,
        template=found.candidate.template, config=found.config, **found.traits.to_json(),
        answer=found.answer, kind=found.kind, ms=found.ms, found_ms=found.found_ms, found_for=found.found_for,
        source_hash=found.source.hash, main=main, compile=compile_line(found, str(path), main), notes=notes,
    )  # fmt: skip


def _write(path: Path, text: str) -> None:
    """Write beside the target and rename, so that a reader never sees half a file."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file, such as {path / 'kernel.cu'}")
    if not path.parent.is_dir():
        raise UsageError(f"the folder {path.parent} does not exist; make it, or write elsewhere with --output")
    try:
        with replacing(path) as file:
            file.write(text)
    except OSError as error:
        raise AutotuneError(f"cannot write {path}: {error.strerror or error}") from error
