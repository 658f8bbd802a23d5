"""Where rules apply in a rendered source, and the source with one of them applied."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from autotune.families.source import SOURCE_NAME, KernelSource
from benchmarks.mutation.rules import RULES, Rule

_NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*", re.DOTALL | re.MULTILINE
)
_TEMPLATE = re.compile(r"^[ \t]*template <[^\n;]*>[ \t]*$", re.MULTILINE)
_AROUND = 4  # lines on either side by which a place is known whose own line stands in the file more than once
INSTRUCTIONS = "common/ptx/"
"""Headers of instructions: what the emulator executes of them is its own, no kernel's."""


@dataclass(frozen=True)
class Site:
    """The `number`-th place in a file at which a rule, the `rule`-th, applies."""

    file: str
    rule: int
    number: int

    @property
    def planted(self) -> Rule:
        return RULES[self.rule]


@lru_cache(256)
def code_of(text: str) -> str:
    """The text with blanks in place of comments, strings, directives and heads of templates; lengths stay."""
    for pattern in (_NOT_CODE, _TEMPLATE):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return text


def sites_of(source: KernelSource) -> Iterator[Site]:
    """All places at which some rule applies."""
    for file, text in _files(source).items():
        code = code_of(text)
        for rule, planted in enumerate(RULES):
            for number, match in enumerate(planted.pattern.finditer(code)):
                if planted.at(match, code) not in (None, match[0]):
                    yield Site(file, rule, number)


def plant(source: KernelSource, site: Site) -> tuple[KernelSource, str]:
    """The source with the mistake, and what was changed in words: `kernel.cu:120: old -> new`.

    Raises:
        LookupError: there is no such place.
    """
    text = _files(source).get(site.file)
    if text is None:
        raise LookupError(f"no file {site.file}")
    code = code_of(text)
    matches = list(site.planted.pattern.finditer(code))
    if site.number >= len(matches):
        raise LookupError(f"no place {site.number} of {site.planted.name} in {site.file}")
    match = matches[site.number]
    new = site.planted.at(match, code)
    if new is None:
        raise LookupError(f"nothing to plant at place {site.number} of {site.planted.name} in {site.file}")
    old = text[match.start() : match.end()]
    lines = "\n" * (old.count("\n") - new.count("\n"))
    changed = text[: match.start()] + new + lines + text[match.end() :]
    line = text[: match.start()].count("\n") + 1
    said = f"{site.file}:{line}: {_short(old)} -> {_short(new) or 'nothing'}, in: {_short(text.splitlines()[line - 1])}"
    if site.file == SOURCE_NAME:
        return replace(source, body=changed), said
    includes = tuple(replace(i, text=changed) if i.name == site.file else i for i in source.includes)
    return replace(source, includes=includes), said


def name_of(family: str, case: int, site: Site) -> str:
    """A short name that stays as long as the rules and the files do."""
    rule = site.planted
    text = f"{family} {case} {site.file} {rule.kind} {rule.name} {rule.pattern.pattern} {site.number}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def place_of(family: str, source: KernelSource, site: Site) -> str:
    """A short name of the mistake and its line of text, with the lines around where that line stands more than once,
    whatever the configuration and the line's number.

    What is known of it holds as long as that text stays.
    """
    _, change = plant(source, site)
    said, _, _ = change.partition(", in: ")
    file, number, words = said.split(":", 2)
    lines = [_short(line) for line in _files(source)[site.file].splitlines()]
    at = int(number) - 1
    around = [line for line in lines[max(0, at - _AROUND) : at + _AROUND + 1] if line]
    known_by = [lines[at]] if lines.count(lines[at]) == 1 else around
    owner = family if file == SOURCE_NAME else ""  # a header is the same in all families
    rule, before = site.planted, _before_in_line(source, site)
    text = "\n".join((owner, file, rule.kind, rule.name, words, *known_by, *before))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _before_in_line(source: KernelSource, site: Site) -> tuple[str, ...]:
    """Of several places of a rule in one line, which one it is; nothing for the first."""
    code = code_of(_files(source)[site.file])
    starts = [match.start() for match in site.planted.pattern.finditer(code)]
    begin = code.rfind("\n", 0, starts[site.number]) + 1
    before = sum(begin <= start for start in starts[: site.number])
    return (str(before),) if before else ()


def _files(source: KernelSource) -> dict[str, str]:
    shared = {include.name: include.text for include in source.includes if not include.name.startswith(INSTRUCTIONS)}
    return {SOURCE_NAME: source.body, **shared}


def _short(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
