"""`autotune export`: the best configuration as source code: a standalone file, a header, an extension of PyTorch."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    AskedFields,
    FullPrecisionOption,
    MaxErrorOption,
    ObjectiveOption,
    OpOption,
    ReferenceOption,
    TemplateOption,
    problem_options,
)
from autotune.cli.output import DbOption, JsonOption, print_json, say, say_missing
from autotune.core.words import format_expected, format_ms

if TYPE_CHECKING:
    from autotune.answers.export import Exported


class ExportFormat(StrEnum):
    """As `autotune.export` has them."""

    FILE = "file"
    HEADER = "header"
    TORCH = "torch"


@problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    op: OpOption = None,
    *,
    asked: AskedFields,
    template: TemplateOption = None,
    reference: ReferenceOption = None,
    full_precision: FullPrecisionOption = False,
    objective: ObjectiveOption = "time",
    max_error: MaxErrorOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="What to write or replace; by default OP.cu, autotune_OP.h or the folder autotune_OP.",
        ),
    ] = None,
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="One .cu file; a header for C++; a folder that PyTorch builds as an extension."),
    ] = ExportFormat.FILE,
    main: Annotated[bool, typer.Option("--main/--no-main", help="A file with a main() that checks and times.")] = True,
    device: Annotated[
        str | None, typer.Option("--device", help="The GPU to write for; by default the one present.")
    ] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the best configuration known as one .cu file: kernels, launcher, check and benchmark.

    The file needs nvcc and nothing else. Its header says how to build it, and running it prints PASS or FAIL. A header
    is included by any number of C++ files and compiled by one; a folder is imported by Python, which builds it.
    """
    from autotune.answers.export import export

    written = export(
        op, output=output, format=form.value, main=main, device=device, db=db, template=template,
        reference=reference, inputs=None, full_precision=full_precision, objective=objective, max_error=max_error,
        **asked.values(),
    )  # fmt: skip
    missing = say_missing(db)
    if as_json:
        print_json({**written.to_json(), "notes": [*written.notes, *missing]})
    else:
        _print(written)


def _print(written: "Exported") -> None:
    from autotune.families.traits import Traits

    say(f"wrote {written.path}: {written.template} for {written.op} on {written.device}, {_time(written)}")
    for name, text in Traits(written.arithmetic, written.deterministic).rows():
        say(f"{name}: {text}")
    for note in written.notes:
        say(f"note: {note}")
    built = written.path.removesuffix(".cu")
    run = f" && {shlex.quote(built if '/' in built else './' + built)}" if written.main else ""
    say(f"next: {written.compile}{run}")


def _time(written: "Exported") -> str:
    expected = format_expected(written.expected_ms, written.sure)
    if written.found_ms is None:
        return ", ".join(filter(None, ["never tuned", expected]))
    known = " ".join(filter(None, [f"{format_ms(written.found_ms)} ms {written.kind}", written.found_for]))
    return ", ".join(filter(None, [expected, known]))
