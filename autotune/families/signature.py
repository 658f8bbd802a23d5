"""Whether a template's launches agree with its kernels, as far as the source text tells.

A launch passes plain bytes, so that a float where the kernel takes an int would be read as garbage. A parameter of a
type that is not one of C++'s own, such as an alias, is taken to agree.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from autotune.core.errors import TemplateError
from autotune.core.plan import Arg, Launch, LaunchPlan, PointerArg, ScalarArg, TensorMapArg, ViewArg
from autotune.families.cpp_parameters import Kind, Parameter, kernels_in, parameter_lists, without_comments
from autotune.families.source import Include

_WIDER: Mapping[Kind, Literal["long long", "double"]] = {"int": "long long", "float": "double"}


def agreed(where: str, body: str, includes: Sequence[Include], plan: LaunchPlan) -> LaunchPlan:
    """The plan, numbers widened to `long long` and `double` where a kernel declares them so.

    Raises:
        TemplateError: a kernel that the source does not define, is not `extern "C"`, or takes other parameters.
    """
    steps = tuple(_agreed(where, body, includes, step) if isinstance(step, Launch) else step for step in plan.steps)
    return plan if steps == plan.steps else replace(plan, steps=steps)


def _agreed(where: str, body: str, includes: Sequence[Include], launch: Launch) -> Launch:
    declared = parameter_lists(launch.kernel, body, includes)
    if not declared:
        _require_macros(where, body, includes, launch.kernel)
        return launch
    if not any('extern "C"' in without_comments(text) for text in (body, *(include.text for include in includes))):
        raise TemplateError(f'{where}: kernel {launch.kernel} must be extern "C", so that it is found by its name')
    complaints = [_complaint(launch, parameters) for parameters in declared]
    if None not in complaints:
        raise TemplateError(f"{where}: kernel {launch.kernel} {complaints[0]}")
    return replace(launch, args=_widened(launch.args, declared[complaints.index(None)]))


def _require_macros(where: str, body: str, includes: Sequence[Include], kernel: str) -> None:
    """Raise TemplateError unless a macro may define the kernel."""
    code = [without_comments(text) for text in (body, *(include.text for include in includes))]
    if any(re.search(r"#\s*define\b(?:[^\n]*\\\n)*[^\n]*(?:__global__|##)", text) for text in code):
        return
    known = sorted({name for text in code for name in kernels_in(text)})
    there = f"it defines {', '.join(known)}" if known else "it defines none"
    raise TemplateError(f"{where}: [[launch]] names kernel {kernel!r}, which the source does not define; {there}")


def _complaint(launch: Launch, parameters: Sequence[Parameter]) -> str | None:
    """What is wrong with a launch of a kernel with these parameters."""
    if len(parameters) != len(launch.args):
        return f"takes {len(parameters)} parameters, its launch passes {len(launch.args)}"
    for place, (arg, parameter) in enumerate(zip(launch.args, parameters, strict=True), start=1):
        given, kind = _given(arg), parameter.kind
        if kind in {"unknown", given, _WIDER.get(given)}:
            continue
        name = f"{arg.name}.view" if isinstance(arg, ViewArg) else arg.name
        hint = f"; write it as 1.0 * ({name})" if (kind, given) in {("float", "int"), ("double", "int")} else ""
        return f"takes {kind} as parameter {place}, its launch passes {name!r}, {given}{hint}"
    return None


def _given(arg: Arg) -> Kind:
    if isinstance(arg, PointerArg):
        return "a pointer"
    if isinstance(arg, TensorMapArg):
        return "TensorMaps" if arg.anywhere else "a TensorMap"
    return "a View" if isinstance(arg, ViewArg) else arg.ctype


def _widened(args: tuple[Arg, ...], parameters: Sequence[Parameter]) -> tuple[Arg, ...]:
    return tuple(
        replace(arg, ctype=_WIDER[arg.ctype])
        if isinstance(arg, ScalarArg) and parameter.kind == _WIDER.get(arg.ctype)
        else arg
        for arg, parameter in zip(args, parameters, strict=True)
    )
