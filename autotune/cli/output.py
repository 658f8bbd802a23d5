"""How the commands that read the database print: tables for people, JSON for programs."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from autotune.store.plain import dumps

DbOption = Annotated[
    str | None, typer.Option("--db", help="Database: a path or SQLAlchemy URL [default: AUTOTUNE_DB, else the user's].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(data: Any) -> None:
    """One JSON document; times that are no numbers are spelled out, as in exports."""
    import json

    typer.echo(json.dumps(json.loads(dumps(data)), indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table on stdout; columns that begin with `>` are set to the right. Not cut when piped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=400)
    console.print(table)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; values that are None or empty are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", (), [])]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        typer.echo(f"{name:<{width}}  {value}")


def format_ms(ms: float | None) -> str:
    """Four significant digits."""
    return "" if ms is None else f"{ms:.4g}"
