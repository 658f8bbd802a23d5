"""How the commands that read the database print: tables for people, JSON for programs."""

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from autotune.core.words import printable
from autotune.store.plain import dumps

DbOption = Annotated[
    str | None, typer.Option("--db", help="Database: a path or SQLAlchemy URL [default: AUTOTUNE_DB, else the user's].")
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print comma-separated values, a column a field and parameter.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def say(text: str) -> None:
    """One line, or several, of which a terminal obeys nothing: names, messages and databases are others'."""
    typer.echo(printable(text))


def print_json(data: Any) -> None:
    """One JSON document; times that are no numbers are spelled out, as in exports."""
    import json

    typer.echo(json.dumps(json.loads(dumps(data)), indent=2))


def print_csv(rows: Sequence[Mapping[str, object]]) -> None:
    """Comma-separated values with a heading; columns are the names of all rows, in the order of their appearance."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    typer.echo(text.getvalue(), nl=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table on stdout, as `autotune.report.table` makes it; folded to the terminal's width, never when piped."""
    from autotune.report.table import table_lines

    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    heading, *lines = table_lines(columns, list(rows), width)
    if title is not None:
        say(title)
    typer.echo(typer.style(heading, bold=True) if terminal else heading)
    for line in lines:
        typer.echo(line)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; values that are None or empty are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", (), [])]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name:<{width}}  {value}")
