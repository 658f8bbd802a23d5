"""From lines of a rendered source to those of its template, which is the file that its author can change.

The template is rendered once more with a mark at each line; what is rendered must be the same without the marks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from autotune.core.dtypes import DTYPES
from autotune.core.errors import AutotuneError, CompileError
from autotune.families.expressions import CUDA_TEXT
from autotune.families.source import SOURCE_NAME, KernelSource
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec

_MARK = re.compile("\ue000(\\d+)\ue001")
_BEGINNING = re.compile("(?:[ \t]*\ue000\\d+\ue001)+")
_TOLD = re.compile(rf"\b{re.escape(SOURCE_NAME)}(?::(\d+)|\((\d+)\))?")


class _Marking(Extension):
    """Puts the number of its line before each line of what is no Jinja."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        for token in stream:
            text = token.value
            if token.type == "data":
                first, *others = text.split("\n")
                marked = [_mark(token.lineno, first), *(_mark(token.lineno + n, o) for n, o in enumerate(others, 1))]
                text = "\n".join(marked)
            yield Token(token.lineno, token.type, text)


_MARKED_TEXT = CUDA_TEXT.overlay(extensions=[_Marking])


def _mark(line: int, text: str) -> str:
    return f"\ue000{line}\ue001{text}"


@dataclass(frozen=True)
class TemplateLines:
    """`lines[i]` is the line of the template `name` that line i+1 of a rendered file comes from; 0: none."""

    name: str = ""
    lines: tuple[int, ...] = ()

    def __call__(self, line: int) -> int:
        """The template's line for a line of the rendered file; 0: not known."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else 0

    def translated(self, said: str) -> str:
        """What a compiler or the emulator says of `kernel.cu`, with the template's name and lines."""
        return _TOLD.sub(self._place, said) if any(self.lines) else said

    def _place(self, told: "re.Match[str]") -> str:
        if told[1] is None and told[2] is None:
            return self.name
        line = self(int(told[1] or told[2]))
        if not line:
            return told[0]
        return f"{self.name}:{line}" if told[1] else f"{self.name}({line})"


def template_lines(template: Template, source: KernelSource, spec: DeviceSpec) -> TemplateLines:
    """Where each line of a rendered source comes from; empty where that cannot be told."""
    try:
        namespace = Space(template, source.problem, spec).namespace(source.candidate.config)
        lines = tuple(_lines(template, source, {**namespace, "ctype": DTYPES[source.problem.dtype].ctype}))
    except Exception:  # noqa: BLE001 - marks in what the template computes with; the rendered file's lines do
        lines = ()
    return TemplateLines(template.path.name, lines)


def _lines(template: Template, source: KernelSource, namespace: Mapping[str, Any]) -> Iterator[int]:
    marked = _MARKED_TEXT.from_string(template.body).render(namespace)
    text = _MARK.sub("", marked)
    blank = len(text) - len(text.lstrip("\n"))
    if text[blank:] != source.body:
        return
    before = template.text[: template.text.find(template.body)].count("\n")  # lines of the front matter
    yield from [0] * source.header.count("\n")
    line = 0
    for rendered in marked.split("\n")[blank:]:
        beginning = _BEGINNING.match(rendered)
        if beginning is not None:  # of a line that only Jinja stood on, and of the next one: the latter
            line = int(_MARK.findall(beginning[0])[-1])
        yield before + line


class CompilesAs:
    """Within the block, compile errors speak of the template's lines."""

    def __init__(self, template: Template, source: KernelSource, spec: DeviceSpec) -> None:
        self._about = template, source, spec

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CompileError):
            raise translated_error(error, template_lines(*self._about)) from error


def translated_error(error: AutotuneError, lines: TemplateLines) -> AutotuneError:
    """The same error in the template's lines."""
    return type(error)(lines.translated(str(error)))
