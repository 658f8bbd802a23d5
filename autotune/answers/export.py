"""Exports: a standalone `.cu` file, a header for a C++ project, or a folder that PyTorch builds as an extension.

`autotune.export(op="backward", T=1024, output="backward.cu")` looks the best configuration up and writes it out:
kernels, launcher, check and benchmark in one file that needs nvcc and nothing else.
"""

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from autotune.answers.export_projects import header_compile_line, header_text, torch_files
from autotune.answers.export_text import compile_line, export_text, has_main
from autotune.answers.lookup import best
from autotune.core.arguments import require_flags, require_path
from autotune.core.errors import AutotuneError, UsageError
from autotune.core.files import written
from autotune.core.values import Value
from autotune.families.user_functions import Function, Named
from autotune.gpus.spec import DeviceSpec

Format = Literal["file", "header", "torch"]
"""A standalone `.cu` file, a header, or a folder for `torch.utils.cpp_extension.load`."""


@dataclass(frozen=True)
class Exported:
    """What was written, and what is known of it.

    `ms` is the time of this problem on this device, None where that is not known; `found_ms` is the time of what the
    configuration was tuned for, and `found_for` says what that is where it is something else.
    """

    path: str
    format: str
    op: str
    problem: dict[str, Value]
    device: str
    template: str
    config: dict[str, Value]
    arithmetic: str
    deterministic: bool
    answer: str  # exact, nearest, architecture, start or default
    kind: str  # measured, estimated or none
    ms: float | None
    found_ms: float | None
    found_for: str
    expected_ms: float | None
    sure: str
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
    format: Format = "file",  # noqa: A002 - as the command's option is called
    main: bool = True,
    device: str | DeviceSpec | None = None,
    db: str | Path | None = None,
    template: str | Path | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    full_precision: bool = False,
    objective: str = "time",
    max_error: float | None = None,
    **fields: Value,
) -> Exported:
    """Write the best configuration known for a problem as source code.

    Args:
        op: `forward` (the default), `backward`, or the op of `template`.
        output: the file, replaced if it exists; by default the op's name with `.cu` in the working folder. Of a header
            `autotune_OP.h`, of an extension the folder `autotune_OP`, and its function has that name.
        format: `file`: one `.cu`; `header`: declarations for C++, and kernels that one file of the project compiles;
            `torch`: a Python package whose import builds the extension.
        main: of a file: also a `main()` that checks and times; attention has one, other ops have no C++ reference.
        device: as for `autotune.best`.
        db: as for `autotune.best`.
        template: as for `autotune.best`.
        reference: as for `autotune.best`.
        inputs: as for `autotune.best`.
        full_precision: as for `autotune.best`.
        objective: as for `autotune.best`.
        max_error: as for `autotune.best`.
        fields: of the problem.

    Raises:
        UsageError: there is no such format, the file's folder does not exist, or the name is that of a folder.
        AutotuneError: the file cannot be written; or what `autotune.best` raises.
    """
    require_flags(main=main)
    if output is not None:
        require_path("output", output, "where to write")
    found = best(
        op, device=device, db=db, template=template, reference=reference, inputs=inputs,
        full_precision=full_precision, objective=objective, max_error=max_error, **fields,
    )  # fmt: skip
    if format not in get_args(Format):
        raise UsageError(f"there is no format {format!r}; choose from {', '.join(get_args(Format))}")
    name = {"file": f"{found.problem.op}.cu", "header": f"autotune_{found.problem.op}.h"}.get(format)
    path = Path(output) if output is not None else Path(name or f"autotune_{found.problem.op}")
    if not path.name.isprintable():  # it stands in a comment of the file
        raise UsageError(f"the file's name {path.name!r} has characters that cannot be printed; write another one")
    notes, main = list(found.notes), main and format == "file"
    if format == "header":
        _write(path, header_text(found, path.name))
        compiled = header_compile_line(found, str(path))
    elif format == "torch":
        texts = torch_files(found, path.name)
        _make_folder(path)
        for file_name, text in texts.items():
            _write(path / file_name, text)
        compiled = f"python {shlex.quote(str(path / '__init__.py'))}"
    else:
        if main and not has_main(found.problem.op):
            notes.append(
                f"there is no C++ reference for {found.problem.op}, so the file has the launcher and no main()"
            )
            main = False
        _write(path, export_text(found, path.name, main))
        compiled = compile_line(found, str(path), main)
    return Exported(
        path=str(path), format=format, op=found.problem.op, problem=dict(found.problem.values),
        device=found.device.name, template=found.candidate.template, config=found.config, **found.traits.to_json(),
        answer=found.answer, kind=found.kind, ms=found.ms, found_ms=found.found_ms, found_for=found.found_for,
        expected_ms=found.expected_ms, sure=found.sure, source_hash=found.source.hash, main=main, compile=compiled,
        notes=tuple(notes),
    )  # fmt: skip


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise UsageError(
            f"the folder {path.parent} does not exist; make it, or write elsewhere with --output"
        ) from error
    except FileExistsError as error:
        raise UsageError(f"{path} is a file; an extension for PyTorch is a folder") from error
    except OSError as error:
        raise AutotuneError(f"cannot make {path}: {error.strerror or error}") from error


def _write(path: Path, text: str) -> None:
    """Write beside the target and rename, so that a reader never sees half a file."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file, such as {path / 'kernel.cu'}")
    if not path.parent.is_dir():
        raise UsageError(f"the folder {path.parent} does not exist; make it, or write elsewhere with --output")
    with written(path) as file:
        file.write(text)
