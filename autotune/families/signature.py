"""Whether a template's launches agree with its kernels, as far as the source text tells.

A launch passes plain bytes, so that a float where the kernel takes an int would be read as garbage. Parameter lists
are read from the definitions; a type that is not one of C++'s own, such as an alias, is taken to agree.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from autotune.core.errors import TemplateError
from autotune.core.plan import Arg, Launch, LaunchPlan, PointerArg, ScalarArg, TensorMapArg, ViewArg
from autotune.families.source import Include

Kind = Literal[
    "a pointer",
    "a View",
    "a TensorMap",
    "a TensorMap without __grid_constant__",
    "int",
    "long long",
    "float",
    "unknown",
]

_COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\")", re.DOTALL)
_CALLED = re.compile(r"[^;{}()]*?\b(\w+)\s*\(")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|register|__restrict__|__restrict|__grid_constant__)\b")
_INTS = frozenset(("int", "signed", "unsigned", "int unsigned", "int signed", "int32_t", "uint32_t"))
_LONGS = frozenset(
    ("long long", "int long long", "long long unsigned", "int long long unsigned", "long", "long unsigned",
     "int64_t", "uint64_t", "size_t", "ptrdiff_t")
)  # fmt: skip
_WORDS = frozenset(("int", "signed", "unsigned", "long", "short", "char", "float", "double", "bool", "void"))


def agreed(where: str, body: str, includes: Sequence[Include], plan: LaunchPlan) -> LaunchPlan:
    """The plan, whole numbers widened to `long long` where a kernel declares them so.

    Raises:
        TemplateError: a kernel that the source does not define, is not `extern "C"`, or takes other parameters.
    """
    steps = tuple(_agreed(where, body, includes, step) if isinstance(step, Launch) else step for step in plan.steps)
    return plan if steps == plan.steps else replace(plan, steps=steps)


def _agreed(where: str, body: str, includes: Sequence[Include], launch: Launch) -> Launch:
    declared = _signatures(body).get(launch.kernel, ())
    for include in includes if not declared else ():
        declared = declared or _signatures(include.text).get(launch.kernel, ())
    if not declared:
        _require_macros(where, body, includes, launch.kernel)
        return launch
    if not any('extern "C"' in _code(text) for text in (body, *(include.text for include in includes))):
        raise TemplateError(f'{where}: kernel {launch.kernel} must be extern "C", so that it is found by its name')
    complaints = [_complaint(launch, signature) for signature in declared]
    if None not in complaints:
        raise TemplateError(f"{where}: kernel {launch.kernel} {complaints[0]}")
    return replace(launch, args=_widened(launch.args, declared[complaints.index(None)]))


def _require_macros(where: str, body: str, includes: Sequence[Include], kernel: str) -> None:
    """Raise TemplateError unless a macro may define the kernel."""
    code = [_code(text) for text in (body, *(include.text for include in includes))]
    if any(re.search(r"#\s*define\b(?:[^\n]*\\\n)*[^\n]*(?:__global__|##)", text) for text in code):
        return
    known = sorted({name for text in code for name in _signatures(text)})
    there = f"it defines {', '.join(known)}" if known else "it defines none"
    raise TemplateError(f"{where}: [[launch]] names kernel {kernel!r}, which the source does not define; {there}")


def _complaint(launch: Launch, signature: tuple[Kind, ...]) -> str | None:
    """What is wrong with a launch of a kernel with these parameters."""
    if len(signature) != len(launch.args):
        return f"takes {len(signature)} parameters, its launch passes {len(launch.args)}"
    for place, (arg, kind) in enumerate(zip(launch.args, signature, strict=True), start=1):
        given = _given(arg)
        if kind in {"unknown", given} or (kind, given) == ("long long", "int"):
            continue
        name = f"{arg.name}.view" if isinstance(arg, ViewArg) else arg.name
        hint = f"; write it as 1.0 * ({name})" if (kind, given) == ("float", "int") else ""
        return f"takes {kind} as parameter {place}, its launch passes {name!r}, {given}{hint}"
    return None


def _given(arg: Arg) -> Kind:
    if isinstance(arg, PointerArg):
        return "a pointer"
    if isinstance(arg, TensorMapArg):
        return "a TensorMap"
    return "a View" if isinstance(arg, ViewArg) else arg.ctype


def _widened(args: tuple[Arg, ...], signature: tuple[Kind, ...]) -> tuple[Arg, ...]:
    return tuple(
        replace(arg, ctype="long long") if isinstance(arg, ScalarArg) and kind == "long long" else arg
        for arg, kind in zip(args, signature, strict=True)
    )


def _code(text: str) -> str:
    """Without comments."""
    return _COMMENT_OR_STRING.sub(lambda match: match[1] or " ", text)


@lru_cache(maxsize=256)
def _signatures(text: str) -> dict[str, tuple[tuple[Kind, ...], ...]]:
    """The kernels that a source defines or declares, each with the parameter lists it is seen with."""
    code, found = _code(text), dict[str, tuple[tuple[Kind, ...], ...]]()
    for match in re.finditer(r"\b__global__\b", code):
        name, parameters = _declared(code, match.end())
        if name is not None:
            found[name] = (*found.get(name, ()), tuple(map(_kind, _split(parameters))))
    return found


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
    if re.match(r"(?:\w+::)*TensorMap\b", plain):  # TMA reads the parameter itself, not a copy of it
        return "a TensorMap" if "__grid_constant__" in parameter else "a TensorMap without __grid_constant__"
    words = plain.split()
    if len(words) > 1 and words[-1] not in _WORDS:
        words.pop()  # the parameter's name
    kind = " ".join(sorted(words))
    if kind in _INTS:
        return "int"
    if kind in _LONGS:
        return "long long"
    return "float" if kind == "float" else "unknown"
