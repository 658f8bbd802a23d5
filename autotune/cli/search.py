"""`autotune search`: the main job."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    AskedFields,
    FullPrecisionOption,
    OpOption,
    field_products,
    problem_options,
    split_setting,
)
from autotune.cli.output import JsonOption, print_json, print_table, say
from autotune.core.blas import one_blas_thread
from autotune.core.values import Value
from autotune.tuning.objective import ENERGY_S, OBJECTIVES, find_objective
from autotune.tuning.samplers import SAMPLERS

if TYPE_CHECKING:
    from autotune.report.results import Asked
    from autotune.tuning.result import SearchResult

_SEARCH, _WHERE = "Search", "Where"


@problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    op: OpOption = None,
    *,
    asked: AskedFields,
    template: Annotated[
        list[str] | None,
        typer.Option(
            "--template", help="Only this family: a name, or a .cu.j2 file. Repeatable.", rich_help_panel=_SEARCH
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="CPU reference of your own op, module:function.", rich_help_panel=_SEARCH),
    ] = None,
    full_precision: FullPrecisionOption = False,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUES",
            help="Only these values of a family's parameter: BLOCK_M=64,128. Repeatable.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=1,
            help="Candidates to evaluate, earlier runs included [default: 40 on cpu, 100 on a GPU, all with grid].",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            help="Seconds after which to finish [default: 150 on cpu, none on a GPU].",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    sampler: Annotated[
        str, typer.Option("--sampler", help=f"{', '.join(SAMPLERS)}.", rich_help_panel=_SEARCH)
    ] = "parzen",
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the sampler and the inputs.", rich_help_panel=_SEARCH)
    ] = 0,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Only the candidates that are likely to be good, at most 12: about 5 s on a GPU machine.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    spills: Annotated[
        bool,
        typer.Option(
            "--spills/--no-spills",
            help="Whether the winner may be a kernel whose registers spill into memory.",
            rich_help_panel=_SEARCH,
        ),
    ] = True,
    objective: Annotated[
        str,
        typer.Option("--objective", help=f"What to minimise: {' | '.join(OBJECTIVES)}.", rich_help_panel=_SEARCH),
    ] = "time",
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error",
            help="The part of the error bound that a candidate may use (0.5: half); more is not feasible.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    energy_seconds: Annotated[
        float,
        typer.Option(
            "--energy-seconds",
            help="How long a candidate is repeated to measure its energy once.",
            rich_help_panel=_SEARCH,
        ),
    ] = ENERGY_S,
    clock: Annotated[
        int | None,
        typer.Option(
            "--clock",
            min=1,
            metavar="MHZ",
            help="Lock the GPU's clock while searching (as root); results are kept apart, as of h200@1200MHz.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    power_limit: Annotated[
        int | None,
        typer.Option(
            "--power-limit",
            min=1,
            metavar="W",
            help="Limit the GPU's power while searching (as root); results are kept apart, as of h200@400W.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="cuda, cuda:1 or cpu [default: the GPU, if any].", rich_help_panel=_WHERE),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="On cpu, the GPU to estimate for [default: h200].", rich_help_panel=_WHERE),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Builds at a time [default: one a core].", rich_help_panel=_WHERE),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            "--storage",
            help="Database: path or SQLAlchemy URL, shared at will [default: AUTOTUNE_DB, else the user's].",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Search for the fastest kernel: generate, build, verify and time candidates; record them all; name the winner.

    Any field of the problem may be a list (--T 512,1024): one search for each combination. Ctrl-C finishes with
    the best so far (exit code 130), and the same command goes on where it ended. Exit code 3: there is no winner.
    """
    from autotune.report.progress import ProgressDisplay
    from autotune.report.results import Asked

    with one_blas_thread():  # the worker, which computes references, has threads of its own
        from autotune.tuning.search import sweep

    choices = asked.choices()
    problems = list(field_products(choices))
    params: dict[str, str] = {}
    for name, text in (split_setting(text, "--param") for text in param or ()):
        params[name] = f"{params[name]},{text}" if name in params else text
    results: list[SearchResult] = []
    try:
        with ProgressDisplay() as display:
            for result in sweep(
                op, problems, trials=trials, timeout=timeout, sampler=sampler, seed=seed, device=device, target=target,
                jobs=jobs, spills=spills, quick=quick, templates=template or (), params=params, reference=reference,
                full_precision=full_precision, objective=objective, max_error=max_error,
                energy_seconds=energy_seconds, clock=clock, power_limit=power_limit, db=db, progress=display,
            ):  # fmt: skip
                results.append(result)
                if not as_json:
                    _print(
                        result,
                        Asked(
                            choices,
                            template or (),
                            reference,
                            db,
                            full_precision,
                            find_objective(objective).name,
                            max_error,
                        ),
                    )
                if result.interrupted:
                    break
    except KeyboardInterrupt:
        if not results:
            raise
    return _end(results, problems, as_json)


def _end(results: "Sequence[SearchResult]", problems: Sequence[Mapping[str, Value]], as_json: bool) -> int:
    """Print what is left to say, and give the exit code."""
    from autotune.cli.main import INTERRUPTED
    from autotune.ops.registry import get_op

    op = get_op(results[0].problem.op)
    missed = [op.problem(**fields) for fields in problems[len(results) :]]
    if as_json:
        found = [result.to_json() for result in results]
        found += [{"problem": problem.to_json(), "best": None, "stopped": "not reached"} for problem in missed]
        print_json(found[0] if len(problems) == 1 else found)
    else:
        if len(results) > 1:
            print_sweep(results)
        for problem in missed:
            say(f"not reached: {problem}")
    if missed or results[-1].stopped == "interrupted":
        return INTERRUPTED
    return 0 if all(result.best is not None for result in results) else 3


def print_sweep(results: "Sequence[SearchResult]") -> None:
    """The winners of several problems, a row each."""
    from autotune.report.results import sweep_columns, sweep_rows, sweep_shared

    typer.echo()
    for line in sweep_shared(results):
        say(line)
    print_table(sweep_columns(results), sweep_rows(results))


def _print(result: "SearchResult", asked: "Asked") -> None:
    from autotune.ops.registry import get_op
    from autotune.report.pareto import pareto_columns, pareto_rows
    from autotune.report.results import (
        best_lines,
        next_command,
        no_winner,
        other_answer,
        shared_lines,
        summary_lines,
        table_columns,
        table_rows,
    )

    for line in summary_lines(result, asked):
        say(line)
    if result.best is None:
        say(no_winner(result))
        return
    typer.echo()
    print_table(table_columns(result), table_rows(result))
    for line in shared_lines(result):
        say(line)
    if result.objective == "time,energy":
        typer.echo()
        say(f"Pareto front: {len(result.pareto)} that no other candidate beats in both time and energy")
        print_table(pareto_columns(), pareto_rows(result.pareto))
    typer.echo()
    for line in best_lines(result):
        say(line)
    say(f"recorded in {result.database}")
    op = get_op(result.problem.op)
    say(f"next: {next_command(op, result, asked)}")
    other = other_answer(op, result, asked)
    if other is not None:
        say(f"note: {other}")
