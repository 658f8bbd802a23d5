"""`autotune bench`: ours beside others' attention, in one run on a GPU."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import PROBLEM_PANEL, AskedFields, FullPrecisionOption, field_products, problem_options
from autotune.cli.output import CsvOption, DbOption, JsonOption, print_csv, print_json, print_table, say, say_missing
from autotune.core.errors import UsageError

if TYPE_CHECKING:
    from autotune.bench.contender import Contender
    from autotune.bench.measured import Row
    from autotune.bench.torch_lab import TorchLab
    from autotune.core.problem import Problem

_OPS = ("forward", "backward")


@problem_options(*_OPS)
def command(  # noqa: PLR0913 - one parameter an option
    op: Annotated[str, typer.Option("--op", help="forward or backward.", rich_help_panel=PROBLEM_PANEL)] = "forward",
    *,
    asked: AskedFields,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Only these peers, comma-separated: flash, cudnn, efficient, math (PyTorch's backends), flash_attn, "
            "flash4, xformers [default: all].",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Search as `search --quick` does where nothing is known of the very problem (extra: gpu)."
        ),
    ] = False,
    full_precision: FullPrecisionOption = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="In each, everybody is timed once.")] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the inputs.")] = 0,
    device: Annotated[str | None, typer.Option("--device", help="cuda or cuda:1 [default: the first GPU].")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw TFLOP/s over T: a .png, .svg or .pdf file (extra: plot).")
    ] = None,
    db: DbOption = None,
    as_csv: CsvOption = False,
    as_json: JsonOption = False,
) -> int:
    """Time our kernels beside PyTorch's backends, flash-attn, flash-attn-4 and xFormers, and compare all with float64.

    Any field of the problem may be a list (--T 512,1024). All work on the same tensors of a GPU and are timed in turn,
    L2 flushed: the GPU's time of a call, and what it costs the host. Who is not installed is listed with the reason.

    Exit codes: 1 if our result is wrong or our kernel failed, 3 if we have none, 4 without a GPU or PyTorch.
    """
    from autotune.bench.peers import chosen_peers
    from autotune.ops.registry import get_op
    from autotune.report.pictures import check_plot

    if op not in _OPS:
        raise UsageError(f"others compute attention alone: --op {op!r} is not one of {', '.join(_OPS)}")
    if as_csv and as_json:
        raise UsageError("--csv and --json are two forms of one table: give one of them")
    peers = chosen_peers(against)
    problems = [get_op(op).problem(**fields) for fields in field_products(asked.choices())]
    if plot is not None:
        check_plot(plot)

    from autotune.bench.torch_lab import open_lab

    lab = open_lab(device, seed)
    if quick:
        _tune(problems, lab, db, full_precision=full_precision)
    else:
        say_missing(db)
    with contextlib.redirect_stdout(sys.stderr):  # what peers print is no part of the table
        rows = _compared(problems, lab, peers, rounds, db, full_precision=full_precision)
        versions = versions_of(peers)
    return report(rows, len(problems), lab.environment(), versions, plot, "json" * as_json or "csv" * as_csv)


def report(
    rows: "Sequence[Row]", wanted: int, environment: Mapping[str, str], versions: Mapping[str, str],
    plot: Path | None, form: str,
) -> int:  # fmt: skip
    """Print what was found, draw it, and give the exit code.

    Args:
        rows: at least one.
        wanted: how many problems there were: fewer rows were interrupted.
        environment: of the device.
        versions: of peers.
        plot: where a picture is wanted.
        form: `json`, `csv`, or empty for a table.
    """
    from autotune.bench.measured import Became
    from autotune.cli.main import INTERRUPTED
    from autotune.report import bench

    if form == "json":
        print_json({"environment": environment, "versions": versions, "rows": [row.to_json() for row in rows]})
    elif form == "csv":
        print_csv(list(bench.csv_rows(rows)))
    else:
        for line in bench.heading_lines(rows, environment, versions):
            say(line)
        typer.echo()
        print_table(bench.table_columns(rows), bench.table_rows(rows))
        typer.echo()
        for line in (*bench.absent_lines(rows), *bench.legend_lines(rows)):
            say(line)
    if plot is not None:
        bench.write_plot(rows, next(bench.heading_lines(rows, environment, versions)), plot)
    if len(rows) < wanted:
        return INTERRUPTED
    ours = {row.ours.became for row in rows if row.ours is not None}
    return 1 if ours & {Became.WRONG, Became.FAILED} else 3 if Became.UNSUPPORTED in ours else 0


def versions_of(peers: "Sequence[Contender]") -> dict[str, str]:
    """The packages of those that are here."""
    found: dict[str, str] = {}
    for peer in peers:
        found |= {} if peer.why_absent() is not None else dict(peer.versions())
    return found


def _tune(problems: "Sequence[Problem]", lab: "TorchLab", db: str | None, *, full_precision: bool) -> None:
    """Search for those of which nothing is known. What fails shows when it is compared."""
    from autotune.answers.tuned import found_or_tuned
    from autotune.bench.ours import look_up
    from autotune.core.errors import NoFeasibleConfiguration
    from autotune.gpus.identity import DeviceName
    from autotune.report.progress import ProgressDisplay

    device = str(DeviceName("cuda", index=lab.index))
    look = look_up(lab.spec, db, full_precision=full_precision)
    with ProgressDisplay() as display:
        for problem in problems:
            fields: dict[str, Any] = problem.fields
            try:
                found_or_tuned(
                    partial(look, problem), "quick", op=problem.op, device=device, db=db, full_precision=full_precision,
                    progress=display, **fields,
                )  # fmt: skip
            except NoFeasibleConfiguration as error:
                say_aside(f"{problem}: {error}")


def _compared(
    problems: "Sequence[Problem]", lab: "TorchLab", peers: "Sequence[Contender]", rounds: int, db: str | None,
    *, full_precision: bool,
) -> "list[Row]":  # fmt: skip
    from autotune.bench.compare import compare_all
    from autotune.bench.ours import Ours, build_all, look_up, with_forwards
    from autotune.devices.driver import cuda_driver
    from autotune.report.bench import progress_line

    look = look_up(lab.spec, db, full_precision=full_precision)
    built = build_all(with_forwards(problems), look)
    say_aside(f"{built} kernels are built; {len(problems)} problems, {rounds} rounds, on {lab.spec.title}")
    done = 0

    def listen(row: "Row") -> None:
        nonlocal done
        done += 1
        say_aside(f"{done}/{len(problems)} {row.problem}: {progress_line(row)}")

    ours = Ours(lab.torch, look, cuda_driver(), lab.index)
    return compare_all(problems, [ours, *peers], lab, rounds, listen)


def say_aside(text: str) -> None:
    """One line on stderr."""
    from autotune.core.words import printable

    typer.echo(printable(text), err=True)
