"""Tables as text: columns two blanks apart, no blanks at the end of a line, as narrow as a terminal where there is one.

A column's name may begin with marks: `>` sets it to the right, `~` allows it to be cut with `…`, `?` allows it to be
left out. The last column may be cut without a mark, unless it is set to the right. Nothing is cut or left out unless
the table is wider than it may be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core.words import printable

_GAP = 2
_LEAST = 16  # characters that a cut column keeps


@dataclass(frozen=True)
class _Column:
    name: str
    right: bool
    cut: bool
    optional: bool
    cells: tuple[str, ...]
    width: int


def column_name(text: str) -> str:
    """A column's name without its marks."""
    return text.lstrip(">~?")


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> Iterator[str]:
    """The heading, then one line a row.

    Args:
        columns: names with their marks.
        rows: a cell a column; None is empty.
        width: characters there are; None for as many as it takes.
    """
    texts = [["" if cell is None else printable(" ".join(str(cell).split())) for cell in row] for row in rows]
    made = [_column(name, [row[place] for row in texts]) for place, name in enumerate(columns)]
    made[-1] = replace(made[-1], cut=not made[-1].right)
    if width is not None:
        made = _narrowed(made, width)
    for line in range(-1, len(texts)):
        cells = [_cell(column, column.name if line < 0 else column.cells[line]) for column in made]
        yield (" " * _GAP).join(cells).rstrip()


def _column(text: str, cells: Sequence[str]) -> _Column:
    name = column_name(text)
    marks = text[: len(text) - len(name)]
    width = max(map(len, (name, *cells)))
    return _Column(name, ">" in marks, "~" in marks, "?" in marks, tuple(cells), width)


def _narrowed(columns: list[_Column], width: int) -> list[_Column]:
    """Columns that fit, if that can be done: cut the widest first, then leave out from the right, then cut again."""
    kept = list(columns)
    while _least(kept) > width and any(column.optional for column in kept):
        kept.remove(next(column for column in reversed(kept) if column.optional))
    widths = [column.width for column in kept]
    while sum(widths) + _GAP * (len(kept) - 1) > width:
        places = [i for i, column in enumerate(kept) if widths[i] > _smallest(column)]
        if not places:
            break
        widths[max(places, key=lambda place: widths[place])] -= 1
    return [replace(column, width=wide) for column, wide in zip(kept, widths, strict=True)]


def _least(columns: Sequence[_Column]) -> int:
    return sum(map(_smallest, columns)) + _GAP * (len(columns) - 1)


def _smallest(column: _Column) -> int:
    return min(column.width, max(_LEAST, len(column.name))) if column.cut else column.width


def _cell(column: _Column, text: str) -> str:
    short = text if len(text) <= column.width else text[: column.width - 1] + "…"
    return f"{short:>{column.width}}" if column.right else f"{short:<{column.width}}"
