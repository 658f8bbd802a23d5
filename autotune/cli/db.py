"""`autotune db`: export, import and upgrade a database."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.output import DbOption, JsonOption, print_json

app = typer.Typer(help="Export, import or upgrade a database.", no_args_is_help=True)


@app.command("export")
def export_command(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write [default: stdout].")] = None,
    winners: Annotated[bool, typer.Option("--winners", help="Only the winners: one a problem and device.")] = False,
    op: Annotated[str | None, typer.Option("--op", help="Of this op only.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="On this device only: h200, cpu:h200.")] = None,
    db: DbOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: what was written, or without -o the records as one list.")
    ] = False,
) -> None:
    """Write records as JSON lines: every measurement, then the winners."""
    from autotune.store import open_store
    from autotune.store.transfer import export_file, export_lines

    with open_store(db, create=False) as store:
        if output is None:
            lines = (line.text() for line in export_lines(store, op=op, device=device, winners_only=winners))
            for text in _as_list(lines) if as_json else lines:
                typer.echo(text)
            return
        count = export_file(store, output, op=op, device=device, winners_only=winners)
    if as_json:
        print_json({"lines": count, "file": str(output)})
    else:
        typer.echo(f"{count} lines written to {output}")


def _as_list(lines: Iterable[str]) -> Iterator[str]:
    """JSON documents as one JSON list, line by line."""
    opening = "["
    for line in lines:
        yield f"{opening}{line}"
        opening = ","
    yield "]" if opening == "," else "[]"


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(help="JSON lines, as `autotune db export` writes them.")],
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify records and add them: all of a file, or none. What is there already is left as it is."""
    from autotune.store import open_store
    from autotune.store.line_files import read_lines
    from autotune.store.transfer import import_lines

    lines = list(read_lines(file))  # before a database is made for them
    with open_store(db) as store:
        report = import_lines(store, lines)
    if as_json:
        print_json({"added": report.added, "known": report.known, "winners": report.winners})
    else:
        typer.echo(f"{report.added} records added, {report.known} known already, {report.winners} winners stand")


@app.command("upgrade")
def upgrade_command(db: DbOption = None, as_json: JsonOption = False) -> None:
    """Bring a database made by an older autotune to the newest schema."""
    from autotune.store.opening import open_engine
    from autotune.store.schema import upgrade

    engine = open_engine(db, create=False)
    try:
        before, after = upgrade(engine)
    finally:
        engine.dispose()
    if as_json:
        print_json({"before": before, "after": after})
    elif before == after:
        typer.echo(f"the schema is the newest already ({after})")
    else:
        typer.echo(f"schema upgraded from {before or 'none'} to {after}")
