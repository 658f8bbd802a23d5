"""Finds the headers a source includes from this project."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from autotune.core.errors import TemplateError
from autotune.families.cpp_parameters import without_comments
from autotune.families.source import Include, read_source

_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)

_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import|embed)\b[ \t]*(.*)$", re.MULTILINE)
_NAMED = re.compile(r'"[^"]+"|<(?!/)(?![^>]*\.\.)[^>]+>')

_DEEPEST = 100


def collect_includes(text: str, roots: Sequence[Path], where: str) -> tuple[Include, ...]:
    """Headers included with quotes, transitively, each after what it includes itself.

    Raises:
        TemplateError: a header is in none of the roots.
    """
    found: dict[str, Include] = {}
    _collect(text, roots, where, found, [])
    return tuple(found.values())


def require_named(text: str, quoted: Collection[str], where: str) -> None:
    """See that a compiler includes nothing but these headers, whose text is in the build key, and its own.

    Raises:
        TemplateError: a header is named by a macro, by its place on this machine, or in another way than others are.
    """
    for named in _DIRECTIVE.findall(without_comments(text.replace("\\\n", ""))):
        if not _NAMED.match(named) or (named[0] == '"' and named.split('"')[1] not in quoted):
            said = f"#include {named.strip()[:80]}"
            raise TemplateError(f"{where}: {said}: a header is named in quotes, or in <> where it is the compiler's")


def _collect(text: str, roots: Sequence[Path], where: str, found: dict[str, Include], stack: list[str]) -> None:
    if len(stack) > _DEEPEST:
        raise TemplateError(f"{where}: headers include one another more than {_DEEPEST} deep")
    quoted = _QUOTED.findall(text)
    require_named(text, quoted, where)
    for name in quoted:
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
