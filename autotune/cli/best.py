"""`autotune best`: look up the best configuration known for a problem."""

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import options
from autotune.cli.output import DbOption, JsonOption, print_json, print_pairs
from autotune.core.values import format_config
from autotune.core.words import format_ms

if TYPE_CHECKING:
    from autotune.answers.best import Best


@options.problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    op: options.OpOption = None,
    *,
    asked: options.AskedFields,
    device: Annotated[
        str | None,
        typer.Option("--device", help="A GPU's name, cuda or cpu [default: the GPU present, else the target]."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option("--template", help="A family of your own (.cu.j2), or the only shipped one to look at."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="module:function, where the template declares its own op.")
    ] = None,
    full_precision: options.FullPrecisionOption = False,
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
        **asked.values(),
    )
    if as_json:
        print_json(answer.to_json(source=source, plan=plan))
    elif source:
        typer.echo(answer.source.code, nl=False)
    else:
        _print(answer)


def _print(answer: "Best") -> None:
    print_pairs(
        [
            ("answer", answer.answer),
            ("time", _time(answer)),
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
    """The time that is known, and of what: of this problem, or of the one it was tuned for."""
    if answer.found_ms is None:
        return ""
    origin = {"own": "from your database", "shipped": "shipped with autotune", "template": ""}[answer.origin]
    where = f"on {answer.found_on}" if answer.found_on else ""
    time = f"{format_ms(answer.found_ms)} ms ({answer.kind})"
    place = " ".join(filter(None, [where, origin]))
    return f"{time} {answer.found_for}, {place}" if answer.found_for else f"{time} {place}"
