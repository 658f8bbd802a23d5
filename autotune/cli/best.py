"""`autotune best`: look up the best configuration known for a problem."""

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import options
from autotune.cli.output import DbOption, JsonOption, print_json, print_pairs, say_missing
from autotune.core.values import format_config
from autotune.core.words import format_ms

if TYPE_CHECKING:
    from autotune.answers.best import Best

_SEARCH_COSTS = (
    "`autotune search --quick` times the likeliest in about 5 s on a GPU machine, a full search in about 30 s"
)


@options.problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    op: options.OpOption = None,
    *,
    asked: options.AskedFields,
    device: Annotated[
        str | None,
        typer.Option("--device", help="A GPU's name, cuda or cpu [default: the GPU present, else the target]."),
    ] = None,
    template: options.TemplateOption = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="module:function, where the template declares its own op.")
    ] = None,
    full_precision: options.FullPrecisionOption = False,
    objective: options.ObjectiveOption = "time",
    max_error: options.MaxErrorOption = None,
    source: Annotated[
        bool, typer.Option("--source", help="Print the CUDA source and nothing else; with --json beside it.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="With --json: the buffers and launches too.")] = False,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look up the best configuration known for a problem: exact, nearest, same architecture, or a default."""
    from autotune.answers.lookup import best

    answer = best(
        op,
        device=device,
        db=db,
        template=template,
        reference=reference,
        inputs=None,
        full_precision=full_precision,
        objective=objective,
        max_error=max_error,
        **asked.values(),
    )
    missing = say_missing(db)
    if as_json:
        data = answer.to_json(source=source, plan=plan)
        print_json({**data, "notes": [*data["notes"], *missing]})
    elif source:
        typer.echo(answer.source.code, nl=False)
    else:
        _print(answer)


def _print(answer: "Best") -> None:
    print_pairs(
        [
            ("answer", answer.answer),
            ("time", _time(answer)),
            ("energy", "" if answer.energy_mj is None else f"{answer.energy_mj:.4g} mJ a call"),
            (
                "expected",
                "" if answer.expected_ms is None else f"about {format_ms(answer.expected_ms)} ms, not measured",
            ),
            ("sure", answer.sure),
            ("search", "" if answer.answer == "exact" else _SEARCH_COSTS),
            ("problem", answer.problem),
            ("device", answer.device.title),
            ("template", answer.candidate.template),
            ("configuration", format_config(answer.config)),
            *answer.traits.rows(),
            ("record", answer.measurement_id),
            *(("note", note) for note in answer.notes),
        ]
    )


def _time(answer: "Best") -> str:
    """The time of this very problem, and where it is from; that of another problem is never shown as one."""
    if answer.ms is None:
        return ""
    origin = {"own": "from your database", "shipped": "shipped with autotune", "template": ""}[answer.origin]
    where = f"on {answer.found_on}" if answer.found_on else ""
    return " ".join(filter(None, [f"{format_ms(answer.ms)} ms ({answer.kind})", where, origin]))
