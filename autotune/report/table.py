"""Tables as text: columns two blanks apart, no blanks at the end of a line, as narrow as a terminal if there is one.

A column's name may begin with marks: `>` sets it to the right, `~` allows it to be folded into several lines, `?`
allows it to be left out. The last column may be folded without a mark, unless it is set to the right; where little room
is left for the last ones that fold, they go below their row. Nothing is folded or left out unless the table is wider
than it may be, and nothing is cut.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core.words import printable

_GAP = 2
_LEAST = 16  # characters a line that a folded column keeps
_LEAST_BESIDE = 40  # that the last one keeps beside the others; with less it goes below them
_INDENT = 4


@dataclass(frozen=True)
class _Column:
    name: str
    right: bool
    folds: bool
    optional: bool
    cells: tuple[str, ...]
    width: int


def column_name(text: str) -> str:
    """A column's name without its marks."""
    return text.lstrip(">~?")


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> Iterator[str]:
    """The heading, then the rows; of what is folded several lines each.

    Args:
        columns: names with their marks.
        rows: a cell a column; None is empty.
        width: characters there are; None for as many as it takes.
    """
    texts = [["" if cell is None else printable(" ".join(str(cell).split())) for cell in row] for row in rows]
    made = [_column(name, [row[place] for row in texts]) for place, name in enumerate(columns)]
    made[-1] = replace(made[-1], folds=not made[-1].right)
    below: list[_Column] = []
    if width is not None and _total(made) > width:
        made, below = _beside_and_below(made, width)
        made = _narrowed(made, width)
    for number in range(-1, len(texts)):
        yield from _row(made, number)
        for column in below:
            text = column.name if number < 0 else column.cells[number]
            lines = _folded(text, max(_LEAST, (width or 0) - _INDENT))
            yield from (" " * _INDENT + line for line in lines if line)


def _beside_and_below(columns: list[_Column], width: int) -> tuple[list[_Column], list[_Column]]:
    """The last columns that fold go below the row, each on lines of its own, where little room is left for them."""
    first = len(columns)
    while first > 1 and columns[first - 1].folds:
        first -= 1
    beside, folding = columns[:first], columns[first:]
    wanted = sum(min(_LEAST_BESIDE, column.width) + _GAP for column in folding)
    return (beside, folding) if _least(beside) + wanted > width else (columns, [])


def _column(text: str, cells: Sequence[str]) -> _Column:
    name = column_name(text)
    marks = text[: len(text) - len(name)]
    width = max(map(len, (name, *cells)))
    return _Column(name, ">" in marks, "~" in marks, "?" in marks, tuple(cells), width)


def _narrowed(columns: list[_Column], width: int) -> list[_Column]:
    """Columns that fit, if that can be done: fold the widest first, then leave out from the right, then fold again."""
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


def _total(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _least(columns: Sequence[_Column]) -> int:
    return sum(map(_smallest, columns)) + _GAP * (len(columns) - 1)


def _smallest(column: _Column) -> int:
    return min(column.width, max(_LEAST, len(column.name))) if column.folds else column.width


def _row(columns: Sequence[_Column], number: int) -> Iterator[str]:
    """The lines of one row; -1: of the heading."""
    cells = [_folded(column.name if number < 0 else column.cells[number], column.width) for column in columns]
    for line in range(max(map(len, cells))):
        texts = [cell[line] if line < len(cell) else "" for cell in cells]
        padded = [
            f"{text:>{column.width}}" if column.right else f"{text:<{column.width}}"
            for column, text in zip(columns, texts, strict=True)
        ]
        yield (" " * _GAP).join(padded).rstrip()


def _folded(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(1, width), break_on_hyphens=False) or [""]
