"""How the commands that read the database print: tables for people, JSON for programs."""

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.core.database_files import check_file, plain_path
from autotune.core.settings import named_database
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


def say_missing(db: str | None) -> tuple[str, ...]:
    """One line on stderr where the database that is named is not there, so that what ships answers; also returned."""
    named = db if db is not None else named_database()
    path = None if named is None else _file(named)
    if path is None or check_file(path):
        return ()
    said = f"there is no database {path}: the answer is of what ships"
    typer.echo(printable(f"note: {said}"), err=True)
    return (said,)


def _file(database: str) -> Path | None:
    """The file of a database; None for a server."""
    if not database.startswith("sqlite"):
        return plain_path(database)
    from autotune.store.location import database_url, sqlite_path  # SQLAlchemy, which look-ups in a path do without

    return sqlite_path(database_url(database))


def print_csv(rows: Sequence[Mapping[str, object]], columns: Sequence[str] = ()) -> None:
    """Comma-separated values with a heading: the names of all rows, in the order of their appearance.

    Where there is no row, `columns`.
    """
    import csv
    import io

    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row) or columns
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
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
