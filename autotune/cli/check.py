"""`autotune check`: what is wrong or slow in a kernel, found on the emulator."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import options
from autotune.cli.output import DbOption, JsonOption, print_json, print_pairs, print_table, say, say_missing
from autotune.core.errors import UsageError

if TYPE_CHECKING:
    from autotune.checker.check import Checked

_MOST_SHOWN = 20
"""Findings of one candidate that are printed; all of them are in the JSON."""


@options.problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    op: options.OpOption = None,
    *,
    asked: options.AskedFields,
    template: Annotated[
        str | None,
        typer.Option("--template", help="A shipped family by name, or a file of your own [default: the winner's]."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A parameter, where it differs from the best known."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="module:function of your op; not needed for a check.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check the whole space, a line a candidate.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="With --all: at most so many of each family, at random.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="With --limit: which ones.")] = 0,
    blocks: Annotated[int, typer.Option("--blocks", min=0, help="Blocks of each launch to trace in full; 0: all.")] = 6,
    hints: Annotated[
        bool, typer.Option("--hints/--no-hints", help="Rerun changed configurations where something can be gained.")
    ] = True,
    estimate: Annotated[
        bool,
        typer.Option("--estimate/--no-estimate", help="Compile for the GPU: occupancy, bound, a modelled time."),
    ] = True,
    limit_s: Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds that one run may take.")] = 120.0,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            "--target",
            help="The GPU whose limits hold and whose time is estimated [default: the one present, else the target].",
        ),
    ] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a kernel on the emulator with every memory access traced: faults by line, counters by line, hints, estimate.

    Finds accesses out of bounds, misaligned or of what nobody wrote, races, divergent barriers, wrong warp masks and
    asynchronous copies that are not waited for. Exit code 1 when something was found. Needs no GPU.
    """
    common: dict[str, Any] = {
        "template": template, "reference": reference, "device": device, "db": db, "blocks": blocks or None,
        "limit_s": limit_s, **asked.values(),
    }  # fmt: skip
    if every and param:
        raise UsageError("--param names one configuration and --all takes every one: give one of the two")
    if limit is not None and not every:
        raise UsageError(f"--limit {limit} says how many configurations --all takes at most: add --all")
    if every:
        ok = _check_all(op, {"limit": limit, "seed": seed, **common}, as_json)
    else:
        pairs = [options.split_setting(text, "--param") for text in param or ()]
        params = {name: options.parse_value(value) for name, value in pairs}
        ok = _check_one(op, {"params": params, "hints": hints, "estimate": estimate, **common}, as_json)
        say_missing(db)
    if not ok:
        raise typer.Exit(1)


def _check_one(op: str | None, arguments: Mapping[str, Any], as_json: bool) -> bool:
    from autotune.checker.check import check

    checked = check(op, **arguments)
    if as_json:
        print_json(checked.to_json())
    else:
        _print(checked)
    return checked.ok


def _check_all(op: str | None, arguments: Mapping[str, Any], as_json: bool) -> bool:
    """Whether all is well. Ctrl-C ends it with what has been checked."""
    from autotune.checker.check import check_all
    from autotune.cli.main import INTERRUPTED

    results: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    interrupted = False
    try:
        for checked in check_all(op, **arguments):
            counts["fine" if checked.ok else "failed" if checked.error else "found"] += 1
            if as_json:
                results.append(checked.to_json())
            else:
                _print_line(checked)
    except KeyboardInterrupt:
        interrupted = True
    if as_json:
        print_json(results)
    else:
        say(_summary(counts, interrupted))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    return counts["fine"] == counts.total()


def _print_line(checked: "Checked") -> None:
    from autotune.report.checks import verdict

    say(f"{checked.candidate}: {verdict(checked)}")
    for finding in checked.findings[:_MOST_SHOWN]:
        say(f"  {finding}")


def _summary(counts: Counter[str], interrupted: bool) -> str:
    said = f"{counts['fine'] + counts['found']} candidates checked, {counts['found']} with findings"
    said += f", {counts['failed']} could not be checked" if counts["failed"] else ""
    return said + ("; interrupted" if interrupted else "")


def _print(checked: "Checked") -> None:
    from autotune.report import checks
    from autotune.report.estimates import LAUNCH_COLUMNS, headline, launch_rows

    print_pairs(
        [
            ("candidate", checked.candidate),
            ("problem", checked.asked),
            ("executed", checked.problem if checked.problem != checked.asked else None),
            ("device", checked.device),
            ("traced", checks.sampling(checked)),
            ("memory", checks.compulsory(checked)),
            ("result", checks.verdict(checked)),
            ("estimate", headline(checked.estimated) if checked.estimated else None),
            ("no estimate", checked.no_estimate),
        ]
    )
    _print_findings(checked)
    if checked.estimated is not None:
        typer.echo()
        print_table(LAUNCH_COLUMNS, launch_rows(checked.estimated), title=f"Estimated for {checked.asked}")
        typer.echo()
    print_table(checks.KERNEL_COLUMNS, checks.kernel_rows(checked))
    source = checked.source.code.splitlines() if checked.source else []
    lines = checked.lines
    of = f"lines of {lines.name}" if any(lines.lines) else "lines of the rendered source"
    for kernel in checked.trace.kernels:
        typer.echo()
        title = f"{kernel.kernel}, memory, traced blocks, {of}"
        print_table(checks.LINE_COLUMNS, checks.line_rows(kernel, source, lines), title=title)
        work = list(checks.work_rows(kernel, source, lines))
        if work:
            typer.echo()
            print_table(checks.WORK_COLUMNS, work, title=f"{kernel.kernel}, work, traced blocks, {of}")
    for hint in checked.hints:
        say(f"hint: {hint}")


def _print_findings(checked: "Checked") -> None:
    for finding in checked.findings[:_MOST_SHOWN]:
        say(f"  {finding}")
        if finding.other is not None and finding.other.place.line:
            other = finding.other
            say(f"      with {other.access or 'the call'} at {other.place}, block {other.block}, thread {other.thread}")
    if len(checked.findings) > _MOST_SHOWN:
        say(f"  … and {len(checked.findings) - _MOST_SHOWN} more (--json has them all)")
