"""`autotune profile`: Nsight Compute on the best configuration known."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    AskedFields,
    FullPrecisionOption,
    OpOption,
    ReferenceOption,
    TemplateOption,
    problem_options,
)
from autotune.cli.output import DbOption, JsonOption, print_json, print_table, say, say_missing

if TYPE_CHECKING:
    from autotune.answers.ncu_table import Profile


class Level(StrEnum):
    """How much ncu counts."""

    BASIC = "basic"
    DETAILED = "detailed"
    FULL = "full"


@problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    op: OpOption = None,
    *,
    asked: AskedFields,
    template: TemplateOption = None,
    reference: ReferenceOption = None,
    full_precision: FullPrecisionOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write or replace.")] = Path("profile.csv"),
    level: Annotated[
        Level, typer.Option("--level", help="How much is counted, ncu's own sets: each takes more runs of the kernel.")
    ] = Level.DETAILED,
    ncu: Annotated[
        str | None, typer.Option("--ncu", help="The program ncu [default: the one on the PATH, or in CUDA_HOME].")
    ] = None,
    print_command: Annotated[
        bool, typer.Option("--print-command", help="Print the command that profiles, and run nothing. Needs no GPU.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", help="cuda or cuda:1; with --print-command a GPU's name, too.")
    ] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run Nsight Compute on the best configuration known, and write its counters for `autotune report --ncu`.

    The kernel is launched once, on random inputs. Exit code 4: there is no GPU.
    """
    from autotune.answers.lookup import best
    from autotune.answers.profiling import find_ncu, gpu_index, ncu_command, profile, require_gpu, task_of

    index = gpu_index(device)
    if not print_command:
        require_gpu(index)
    found = best(
        op, device=device, db=db, template=template, reference=reference, inputs=None,
        full_precision=full_precision, objective="time", max_error=None, **asked.values(),
    )  # fmt: skip
    say_missing(db)
    task = task_of(found, index, reference)
    if print_command:
        typer.echo(shlex.join(ncu_command(task, ncu or "ncu", level.value)))
        return
    counted = profile(found, task, ncu_command(task, find_ncu(ncu), level.value), output)
    if as_json:
        print_json({
            "file": str(output), **counted.about,
            "kernels": [
                {"kernel": kernel.name, "metrics": {name: m.number for name, m in kernel.metrics.items()}}
                for kernel in counted.kernels
            ],
        })  # fmt: skip
        return
    _print(counted, output)


def _print(counted: "Profile", output: Path) -> None:
    names = list(dict.fromkeys(name for kernel in counted.kernels for name in kernel.figures()))
    rows = [(kernel.name, *(str(kernel.figures().get(name, "")) for name in names)) for kernel in counted.kernels]
    print_table(["kernel", *(f">{name}" for name in names)], rows, title=str(counted.about.get("candidate", "")))
    say(f"wrote {output}; next: autotune report --ncu {shlex.quote(str(output))}")
