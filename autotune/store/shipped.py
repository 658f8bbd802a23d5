"""The winners that come with the package: `db/winners/<gpu>.jsonl`, one line each."""

from functools import cache
from pathlib import Path

from autotune.core.errors import UsageError
from autotune.core.resources import resource_root
from autotune.store.json_lines import Line
from autotune.store.line_files import read_lines

FOLDER = "winners"


def load_winners(path: Path) -> tuple[Line, ...]:
    """The winners in one file.

    Raises:
        UsageError: a line is not sound, or is no winner; the message has its number.
    """
    lines = tuple(read_lines(path))
    for line in lines:
        if not line.is_winner:
            raise UsageError(f"{path} holds a record that is no winner: {line.problem} on {line.identity.name}")
    return lines


def shipped_files() -> tuple[Path, ...]:
    """The files of winners that come with the package, one a GPU."""
    return tuple(sorted((resource_root("db") / FOLDER).glob("*.jsonl")))


@cache
def shipped_winners() -> tuple[Line, ...]:
    """All winners that come with the package."""
    return tuple(line for path in shipped_files() for line in load_winners(path))
