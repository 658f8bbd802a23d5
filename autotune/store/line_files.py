"""Files of JSON lines: read and verified whole, written whole."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from autotune.core.errors import UsageError
from autotune.core.files import written
from autotune.store.json_lines import Line, LineError, parse_line


def read_lines(path: Path) -> Iterator[Line]:
    """The records of a file; empty lines are skipped.

    Raises:
        UsageError: the file cannot be read, or a line is not sound; the message has its number.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield _parse(path, number, text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason}") from error


def _parse(path: Path, number: int, text: str) -> Line:
    try:
        return parse_line(text)
    except LineError as error:
        raise UsageError(f"{path}, line {number}: {error}") from error


def write_lines(path: Path, lines: Iterable[Line]) -> int:
    """Write records to a file, which changes only once they are all written; returns how many.

    Raises:
        AutotuneError: the file cannot be written.
    """
    count = 0
    with written(path) as file:
        for line in lines:
            file.write(line.text() + "\n")
            count += 1
    return count
