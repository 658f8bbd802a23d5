"""The parameters of kernels, read from CUDA source text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from autotune.families.source import Include

Kind = Literal[
    "a pointer",
    "a View",
    "a TensorMap",
    "TensorMaps",
    "a TensorMap without __grid_constant__",
    "int",
    "long long",
    "float",
    "double",
    "a number of less than 4 bytes",
    "unknown",
]

_COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\")", re.DOTALL)
_CALLED = re.compile(r"[^;{}()]*?\b(\w+)\s*\(")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|register|__restrict__|__restrict|__grid_constant__)\b")
_FOR_THE_KERNEL = re.compile(r"\b(?:__restrict__|__restrict|__grid_constant__)\b")
_INTS = frozenset(("int", "signed", "unsigned", "int unsigned", "int signed", "int32_t", "uint32_t"))
_LONGS = frozenset(
    ("long long", "int long long", "long long unsigned", "int long long unsigned", "long", "long unsigned",
     "int64_t", "uint64_t", "size_t", "ptrdiff_t")
)  # fmt: skip
_WORDS = frozenset(("int", "signed", "unsigned", "long", "short", "char", "float", "double", "bool", "void"))


@dataclass(frozen=True)
class Parameter:
    """One parameter as it is declared: `const float* __restrict__ x`."""

    text: str

    @cached_property
    def kind(self) -> Kind:
        """What a launch may pass for it."""
        return _kind(self.text)

    @property
    def type(self) -> str:
        """Its type as an argument is written: without its name, `__restrict__` and `__grid_constant__`."""
        declared = " ".join(_FOR_THE_KERNEL.sub(" ", self.text).split())
        array = re.fullmatch(r"(.*?)\s*\w*\s*\[[^\]]*\]", declared)
        if array is not None:
            return f"{array[1]}*"
        named = re.fullmatch(r"(.*[\w>*&])\s*(?<!\w)(\w+)", declared)
        if named is None or named[2] in _WORDS or not _QUALIFIERS.sub("", named[1]).strip():
            return declared
        return str(named[1])


def without_comments(text: str) -> str:
    """A source with a space in place of each comment."""
    return _COMMENT_OR_STRING.sub(lambda match: match[1] or " ", text)


@lru_cache(maxsize=256)
def kernels_in(text: str) -> Mapping[str, tuple[tuple[Parameter, ...], ...]]:
    """The kernels that a source defines or declares, each with the parameter lists it is seen with."""
    code, found = without_comments(text), dict[str, tuple[tuple[Parameter, ...], ...]]()
    for match in re.finditer(r"\b__global__\b", code):
        name, parameters = _declared(code, match.end())
        if name is not None:
            found[name] = (*found.get(name, ()), tuple(map(Parameter, _split(parameters))))
    return found


def parameter_lists(kernel: str, body: str, includes: Iterable[Include]) -> tuple[tuple[Parameter, ...], ...]:
    """Those of one kernel, in the body, else in the first header that has it; none where a macro makes it."""
    texts = (body, *(include.text for include in includes))
    return next((found[kernel] for found in map(kernels_in, texts) if kernel in found), ())


def _declared(code: str, start: int) -> tuple[str | None, str]:
    """Name and parameter list of the function declared there; `__launch_bounds__(…)` and the like come before it."""
    while (match := _CALLED.match(code, start)) is not None:
        inside = _inside(code[match.end() :])
        if not match[1].startswith("__"):
            return match[1], inside
        start = match.end() + len(inside) + 1
    return None, ""


def _inside(text: str) -> str:
    """Up to the parenthesis that closes the one before the text."""
    depth = 1
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[:place]
    return text


def _split(parameters: str) -> list[str]:
    """Pieces between commas that are not inside brackets; none for `()` and `(void)`."""
    pieces, depth = [""], 0
    for character in parameters:
        depth += (character in "<([") - (character in ">)]")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [] if parameters.strip() in {"", "void"} else pieces


def _kind(parameter: str) -> Kind:
    plain = _QUALIFIERS.sub(" ", parameter).replace("std::", "").strip()
    if re.match(r"(?:\w+::)*View\s*<", plain):
        return "unknown" if "*" in plain.rpartition(">")[2] else "a View"
    if "*" in plain or "[" in plain:
        return "a pointer"
    if (maps := re.match(r"(?:\w+::)*TensorMap(s?)\b", plain)) is not None:  # TMA reads the parameter, not a copy of it
        mapped: Kind = "TensorMaps" if maps[1] else "a TensorMap"
        return mapped if "__grid_constant__" in parameter else "a TensorMap without __grid_constant__"
    words = plain.split()
    if len(words) > 1 and words[-1] not in _WORDS:
        words.pop()  # the parameter's name
    kind = " ".join(sorted(words))
    if kind in _INTS:
        return "int"
    if kind in _LONGS:
        return "long long"
    known: dict[str, Kind] = {"float": "float", "double": "double"}
    small = set(words) <= _WORDS and {"bool", "char", "short"} & set(words)
    return "a number of less than 4 bytes" if small else known.get(kind, "unknown")
