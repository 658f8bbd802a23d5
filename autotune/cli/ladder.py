"""`autotune ladder`: climb the published versions."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import PROBLEM_PANEL, AskedFields, problem_options
from autotune.cli.output import DbOption, JsonOption, print_json, print_table, say
from autotune.core.errors import UsageError

if TYPE_CHECKING:
    from autotune.ladder.climbed import Climb


@problem_options("forward", "backward")
def command(  # noqa: PLR0913 - one parameter an option
    op: Annotated[str, typer.Option("--op", help="backward or forward.", rich_help_panel=PROBLEM_PANEL)] = "backward",
    *,
    asked: AskedFields,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=1,
            help="Candidates for each version and each shared kernel, earlier runs included "
            "[default: 2 on cpu, 12 on a GPU].",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0,
            help="Seconds that are shared out among the versions; none is begun after them [default: none].",
        ),
    ] = None,
    peers: Annotated[
        bool | None,
        typer.Option(
            "--peers/--no-peers",
            help="Measure PyTorch's attention and cuBLAS in the same run [default: on a GPU, with PyTorch].",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sampler and the inputs.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the times: a .png, .svg or .pdf file (extra: plot).")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cuda, cuda:1 or cpu [default: the GPU, if any].")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="On cpu, the GPU to estimate for [default: h200].")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Builds at a time [default: one a core].")] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> int:
    """Climb a published ladder: tune each version in turn, and say what its idea gains.

    On a GPU the default is the published problem (B=4 backward, B=8 forward, NH=12, T=1024, HS=64, causal). On cpu the
    times are estimates for the target GPU, and the default is small: B=1, NH=2, T=256, HS=64. Searches are
    ordinary ones: recorded in the database, and gone on with by the same command.
    """
    from autotune.cli.main import INTERRUPTED
    from autotune.devices.factory import choose_device
    from autotune.ladder.climb import climb, default_options, ladder_problem
    from autotune.ladder.peers import choose_peers
    from autotune.ladder.versions import LADDERS
    from autotune.report.ladder import write_plot
    from autotune.report.pictures import check_plot
    from autotune.report.progress import ProgressDisplay
    from autotune.store import open_store

    if op not in LADDERS:
        raise UsageError(f"there is no ladder of {op!r}; there are {', '.join(LADDERS)}")
    if plot is not None:
        check_plot(plot)
    opener = choose_device(device, target)
    ask_peers = choose_peers(peers, opener.gpu_index)
    problem = ladder_problem(LADDERS[op], asked.values(), opener.estimates)
    options = default_options(trials, seed, jobs, opener.estimates, hurried=timeout is not None)
    with open_store(db) as store, ProgressDisplay() as display:
        found = climb(
            LADDERS[op], problem, opener, options, store, listener=display, announce=partial(typer.echo, err=True),
            timeout_s=timeout, ask_peers=ask_peers,
        )  # fmt: skip
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    if plot is not None:
        write_plot(found, plot)
    if found.interrupted:
        return INTERRUPTED
    return 0 if any(rung.ms is not None for rung in found.rungs) else 3


def _print(found: "Climb") -> None:
    from autotune.report.ladder import shared_lines, summary_lines, table_columns, table_rows

    for line in summary_lines(found):
        say(line)
    typer.echo()
    print_table(table_columns(found), table_rows(found))
    typer.echo()
    for line in shared_lines(found):
        say(line)
    if found.ladder.reference:
        say(found.ladder.reference_for(found.problem))
    say(f"recorded in {found.database}")
