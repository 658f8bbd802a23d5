"""`autotune replay`: compare samplers on recorded spaces, without a device."""

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.output import JsonOption, print_json, print_table
from autotune.core.errors import UsageError
from autotune.tuning.objective import find_objective
from autotune.tuning.samplers import SAMPLERS


def command(  # noqa: PLR0913 - an option each
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Recordings, plain or gzipped: a Kernel Tuner cache, T4 results, KTT's JSON output, or what "
            "`autotune db export` wrote of one problem, device and family.",
        ),
    ],
    *,
    sampler: Annotated[
        list[str] | None,
        typer.Option("--sampler", help=f"May be repeated: {', '.join(SAMPLERS)} [default: {SAMPLERS[0]}]."),
    ] = None,
    trials: Annotated[
        str, typer.Option("--trials", help="Evaluations after which to compare, such as 50,100,200.")
    ] = "50,100,200",
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=10_000, help="Searches of each kind.")] = 10,
    in_flight: Annotated[
        str,
        typer.Option("--in-flight", help="Candidates under way at a time, such as 1,4,20: asked before results come."),
    ] = "1",
    build: Annotated[
        float,
        typer.Option(
            "--build", min=0.0, help="So many measurements take as long as a build; all of them build at once."
        ),
    ] = 15.0,
    objective: Annotated[
        str, typer.Option("--objective", help="time | energy | edp, where recordings tell energies.")
    ] = "time",
    template: Annotated[
        str | None, typer.Option("--template", help="The family to take from an export that has several.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw best against evaluations: a .png, .svg or .pdf file (extra: plot)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play recorded spaces back and compare samplers: best time found over the optimum, median / 90th percentile.

    Every search is repeated with other seeds; nothing is built, run or recorded. Of several files the last rows are
    geometric means. `built`: candidates that were built, of which some are dropped; `time`: what all would take, in
    measurements.
    """
    from autotune.devices.recorded import RecordedSpace
    from autotune.report.pictures import check_plot, save_plot
    from autotune.report.replays import UNITS, Compared, as_data, draw, mean_rows, row
    from autotune.tuning.replayed import course, optimum_of
    from autotune.tuning.samplers import require_sampler

    by = find_objective(objective)
    marks, flights = _numbers("--trials", trials), _numbers("--in-flight", in_flight)
    samplers = list(dict.fromkeys(sampler or SAMPLERS[:1]))
    for name in samplers:
        require_sampler(name)
    if plot is not None:
        check_plot(plot)
    recordings = [(file, RecordedSpace.load(file, template)) for file in dict.fromkeys(files)]
    compared = []
    for file, recording in recordings:
        for name in samplers:
            for flight in flights:
                courses = [course(recording, name, marks[-1], seed, flight, build, by) for seed in range(seeds)]
                compared.append(Compared(str(file), optimum_of(recording, by), name, flight, courses, by.name))
    if plot is not None:
        save_plot(draw(compared), plot)
    if as_json:
        print_json(as_data(compared, marks))
        return
    after = [f">after {mark}" for mark in marks]
    columns = ["~recording", f">optimum {UNITS[by.name]}", "sampler", ">in flight", *after, ">built", ">time"]
    rows = [row(c, marks) for c in compared]
    print_table(columns, [*rows, *(mean_rows(compared, marks) if len(recordings) > 1 else ())])


def _numbers(option: str, text: str) -> list[int]:
    """Positive numbers, ascending.

    Raises:
        UsageError: something else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 1_000_000 for part in parts):
        raise UsageError(f"{option} takes numbers from 1 to 1000000, separated by commas, not {text!r}")
    return sorted({int(part) for part in parts})
