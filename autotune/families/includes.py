"""Finds the headers a source includes from this project."""

import re
from collections.abc import Sequence
from pathlib import Path

from autotune.core.errors import TemplateError
from autotune.families.source import Include, read_source

_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)

_DEEPEST = 100


def collect_includes(text: str, roots: Sequence[Path], where: str) -> tuple[Include, ...]:
    """Headers included with quotes, transitively, each after what it includes itself.

    Raises:
        TemplateError: a header is in none of the roots.
    """
    found: dict[str, Include] = {}
    _collect(text, roots, where, found, [])
    return tuple(found.values())


def _collect(text: str, roots: Sequence[Path], where: str, found: dict[str, Include], stack: list[str]) -> None:
    if len(stack) > _DEEPEST:
        raise TemplateError(f"{where}: headers include one another more than {_DEEPEST} deep")
    for name in _QUOTED.findall(text):
        if name in found or name in stack:
            continue
        header = _read(name, roots, where)
        _collect(header, roots, name, found, [*stack, name])
        found[name] = Include(name, header)


def _read(name: str, roots: Sequence[Path], where: str) -> str:
    if ".." in Path(name).parts:  # it would also be written outside the folder that is compiled
        raise TemplateError(f'{where}: #include "{name}": a header is named without ".."')
    for root in roots:
        try:
            path = (root / name).resolve()
            if path.is_relative_to(root.resolve()) and path.is_file():
                return read_source(path)
        except (OSError, ValueError) as error:
            raise TemplateError(f'{where}: cannot read #include "{name[:80]}": {error}') from error
    raise TemplateError(f'{where}: #include "{name}" is found neither beside the template nor among templates/')
