"""The text of an exported file, put together from `templates/export/`."""

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import jinja2

from autotune.answers.best import Best
from autotune.answers.export_launcher import LaunchCode, Launcher, Parameter, ZeroCode
from autotune.core.dtypes import DTYPES
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.core.resources import resource_root
from autotune.core.words import format_expected, format_ms
from autotune.families.expressions import CUDA_TEXT, cpp_literal
from autotune.families.flags import merged
from autotune.families.source import NVCC_FLAGS, KernelSource
from autotune.ops.op import Op
from autotune.ops.registry import get_op

_MAINS = ("forward", "backward")
_AXES = 4
_RULE = "// " + " {} ".center(108, "=")
_INCLUDED = re.compile(r'\s*#\s*(include\s+"|pragma\s+once)')
_MORE_THAN_USED = "#pragma nv_diag_suppress 177, 821  // headers define more than is used, some for the device only\n"
_LICENCE = "MIT, The autotune authors"
_OWN_LICENCE = f"of the kernels, what their author says; of the launcher and of autotune's headers, {_LICENCE}"


def has_main(op: str) -> bool:
    """Whether exports of this op can check themselves: a reference in C++ exists."""
    return op in _MAINS


def nvcc_options(found: Best) -> str:
    """Of every command that builds an export.

    Where a family needs one architecture's own instructions, that architecture alone is named: with `-arch` nvcc also
    makes PTX for its relatives, which do not have them.
    """
    arch, family = found.device.arch, found.template.front.arch if found.template else None
    only = (family or "").endswith(("a", "f"))
    target = f"-gencode arch={arch.replace('sm_', 'compute_')},code={arch}" if only else f"-arch={arch}"
    return f"{' '.join(merged(NVCC_FLAGS, found.source.flags))} {target}"


def compile_line(found: Best, name: str, main: bool) -> str:
    """The command that builds an exported file."""
    built = name.removesuffix(".cu") if main else name.removesuffix(".cu") + ".o"
    return f"nvcc {nvcc_options(found)} {'' if main else '-c '}{shlex.quote(name)} -o {shlex.quote(built)}"


def export_text(found: Best, file_name: str, main: bool) -> str:
    """The whole file for the answer of a look-up.

    Raises:
        TemplateError: the launch section does not agree with the kernels.
    """
    op = get_op(found.problem.op)
    launcher = Launcher(found.template, op, found.problem, found.source, found.device)
    run = ["run:            checks every output, times, prints PASS (exit code 0) or FAIL (1)"] if main else []
    context = launcher_context(launcher, op, found.problem, function_name(op))
    parts = [
        heading(found, compile_line(found, file_name, main), run), kernel_code(found.source),
        "\n" + rendered("launcher.cu", context),
    ]  # fmt: skip
    if main:
        program = _context(launcher, op, found)
        parts += [rendered(f"{name}.cu", program) for name in ("harness", "attention", op.name)]
    return "".join(parts)


def rendered(name: str, context: dict[str, Any]) -> str:
    """A template of `templates/export/`."""
    path = resource_root("templates") / "export" / f"{name}.j2"
    try:
        return CUDA_TEXT.from_string(path.read_text(encoding="utf-8")).render(context)
    except jinja2.TemplateError as error:
        raise AssertionError(f"{path}: {error}") from error


def heading(found: Best, compiled_by: str, more: Sequence[str] = (), comment: str = "// ") -> str:
    """The comment that says what a file is; `more`: lines behind the compile line."""
    op = get_op(found.problem.op)
    fields = found.problem.key.partition(" ")[2]
    config = found.candidate.key.partition(" ")[2]
    own = not found.template.path.resolve().is_relative_to(resource_root("templates").resolve())
    lines = [
        f"{op.name}: {op.summary}",
        "",
        f"problem:        {fields}",
        f"kernels:        {found.candidate.template}: {found.template.front.summary}",
        f"configuration:  {config or 'none'}",
        *(f"{name + ':':<16}{text}" for name, text in found.traits.rows()),
        f"device:         {found.device.title} ({found.device.arch})",
        f"time:           {_time(found)}",
        f"compile:        {compiled_by}",
        *more,
        f"hash:           {found.source.hash} (`autotune show {found.source.hash}` finds it in the database)",
        f"licence:        {_OWN_LICENCE if own else _LICENCE}",
    ]
    return "".join(f"{comment}{line}".rstrip() + "\n" for line in lines)


def _time(found: Best) -> str:
    expected = format_expected(found.expected_ms, found.sure)
    if found.found_ms is None:
        start = found.answer == "start"
        what = "a start that the family lists for such problems" if start else "the template's default configuration"
        return "; ".join(filter(None, [f"never tuned: {what}", expected]))
    verb = "measured" if found.kind == "measured" else "estimated by a model, not measured,"
    time = f"{format_ms(found.found_ms)} ms, {verb} on {found.found_on}"
    return "; ".join(filter(None, ["not known", expected, f"{time} {found.found_for}"])) if found.found_for else time


def kernel_code(source: KernelSource) -> str:
    """Headers in the order in which they need one another, then the kernels, all without their include lines."""
    code = []
    for name, text in (*((include.name, include.text) for include in source.includes), ("kernels", source.body)):
        kept = "\n".join(line for line in text.splitlines() if not _INCLUDED.match(line))
        code.append(f"\n{_RULE.format(name)}\n\n" + re.sub(r"\n{3,}", "\n\n", kept).strip("\n") + "\n")
    return f"\n{_MORE_THAN_USED}{''.join(code)}"


def launcher_context(launcher: Launcher, op: Op, problem: Problem, name: str) -> dict[str, Any]:
    """What the templates of a launcher called `name` need."""
    sizes = [f"long long {name}" for name in launcher.sizes]
    used = set(re.findall(r"\w+", " ".join(scratch.nbytes for scratch in launcher.scratch)))
    scalars = [f"float {name}" for name in launcher.scalars]
    return {
        "name": name,
        "scope": "",
        "summary": f"{op.summary[:1].upper()}{op.summary[1:]}.",
        "scratches": launcher.scratch,
        "steps": [_step(step, launcher) for step in launcher.steps],
        "sizes": launcher.sizes,
        "workspace_parameters": [f"long long {n}" if n in used else f"long long /* {n} */" for n in launcher.sizes],
        "views": [{"name": name, "value": value} for value, name in launcher.views.items()],
        "maps": tuple(launcher.maps.values()),
        "declarations": [
            *(parameter.declaration for parameter in launcher.parameters),
            *([", ".join(sizes)] if sizes else []),
            *scalars,
            "void* workspace",
            "cudaStream_t stream",
        ],
        "documentation": list(_documentation(launcher, op, problem, name)),
        "checks": launcher.checks,
        "pointers": [
            {"name": p.spec.name, "ctype": DTYPES[p.spec.dtype].ctype, "strided": p.strided}
            for p in launcher.parameters
        ],
        "zeroes_outputs": launcher.zeroes_outputs,
    }


def function_name(op: Op) -> str:
    """Name of the launcher."""
    return f"autotune_{op.name}"


def _step(step: LaunchCode | ZeroCode, launcher: Launcher) -> dict[str, Any]:
    if isinstance(step, LaunchCode):
        return {**vars(step), "attributes": step.attributes}
    nbytes = {scratch.name: scratch.nbytes for scratch in launcher.scratch}
    tensors = [_zeroed(parameter) for parameter in step.tensors]
    return {
        "kernel": None, "condition": step.condition, "scratch": step.scratch, "nbytes": nbytes.get(step.scratch or ""),
        "tensors": tensors,
    }  # fmt: skip


def _zeroed(parameter: Parameter) -> dict[str, Any]:
    spec = parameter.spec
    elements = math.prod(spec.shape)
    names = [f"{spec.name}_strides[{axis}]" for axis in range(len(spec.shape))]
    return {
        "name": spec.name, "ctype": DTYPES[spec.dtype].ctype, "rank": len(spec.shape), "shape": spec.shape,
        "strides": names if parameter.strided else spec.strides, "elements": elements, "blocks": -(-elements // 256),
    }  # fmt: skip


def _documentation(launcher: Launcher, op: Op, problem: Problem, function: str) -> list[str]:
    lines = ["Device pointers, with the shape and element strides of the problem above:"]
    width = max(map(len, (*(parameter.spec.name for parameter in launcher.parameters), *launcher.sizes)))
    changed = op.in_place(problem)
    for parameter in launcher.parameters:
        spec, kind = parameter.spec, DTYPES[parameter.spec.dtype].ctype
        place = f"{'any strides, for example' if parameter.strided else 'strides'} {_tuple(spec.strides)}"
        role = "changed in place" if spec.name in changed else spec.role
        lines.append(f"    {spec.name:<{width}}  {role}, {kind} {_tuple(spec.shape)}, {place}")
    if launcher.maps:
        lines += _mapped(launcher)
    if launcher.sizes:
        helps = {field.name: field.help for field in op.fields}
        lines += ["The shape, which may be another than the one above:"]
        lines += [f"    {name:<{width}}  {helps[name].partition(';')[0] or 'whole number'}" for name in launcher.sizes]
    for name in launcher.scalars:
        lines.append(f"{name}: {op.scalars(problem)[name]!r} for this problem.")
    lines.append(f"workspace: {function}_workspace(...) bytes of device memory, at a multiple of 256.")
    fixed = {**problem.fields, **launcher.fixed}
    arguments = (*launcher.sizes, *launcher.scalars)
    texts = [f"{name}={cpp_literal(value)}" for name, value in fixed.items() if name not in arguments]
    lines.append(f"Fixed in the kernels: {', '.join(texts)}.")
    return lines


def _mapped(launcher: Launcher) -> Iterator[str]:
    """What TMA wants of the tensors that it copies."""
    tensors = {p.spec.name for p in launcher.parameters}
    for anywhere in (False, True):
        mapped = sorted({made.data for made in launcher.maps.values() if made.anywhere is anywhere} & tensors)
        names = ", ".join(mapped)
        if mapped and not anywhere:
            yield f"TMA copies {names}: they start at multiples of 16 bytes, the last axis has stride 1, the"
            yield "others have strides of multiples of 16 bytes. Anything else returns cudaErrorInvalidValue."
        elif mapped:
            yield f"TMA copies {names}: the last axis has stride 1, the one before it a stride of a multiple of 16"
            yield "bytes. Anything else returns cudaErrorInvalidValue."


def _tuple(values: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, values))})"


def _context(launcher: Launcher, op: Op, found: Best) -> dict[str, Any]:
    """What the templates of `main()` need: the problem's constants, where tensors lie, and the launcher's arguments."""
    problem, plan = found.problem, found.source.plan
    tensors = [parameter.spec for parameter in launcher.parameters]
    return {
        **problem.fields,
        "problem": problem.key,
        "candidate": found.candidate.key,
        "scale": repr(op.scalars(problem)["scale"]),
        "flops": repr(float(op.flops(problem))),
        "factor": repr(float(op.error_factor)),
        "ctype": DTYPES[problem.dtype].ctype,
        "name": function_name(op),
        "tensors": [_layout(tensor) for tensor in tensors],
        "storages": [
            {"name": buffer.name, "ctype": DTYPES[buffer.dtype].ctype, "elements": buffer.elements}
            for buffer in plan.buffers
            if buffer.role != "workspace"
        ],
        "storage_of": {tensor.name: tensor.storage for tensor in tensors},
        "size_values": [f"check::{name}" for name in launcher.sizes],
        "call": _call(launcher),
    }


def _layout(tensor: TensorSpec) -> dict[str, Any]:
    missing = [1] * (_AXES - len(tensor.shape))
    return {
        "name": tensor.name, "size": [*missing, *tensor.shape], "stride": [*missing, *tensor.strides],
        "offset": tensor.offset,
    }  # fmt: skip


def _call(launcher: Launcher) -> list[str]:
    arguments = []
    for parameter in launcher.parameters:
        spec = parameter.spec
        arguments.append(f"{spec.storage}_memory.data + {spec.offset}")
        if parameter.strided:
            first = _AXES - len(spec.shape)
            arguments.append(f"{spec.name}_layout.stride" + (f" + {first}" if first else ""))
    scalars = [f"static_cast<float>({name.upper()})" for name in launcher.scalars]
    return [*arguments, *launcher.sizes, *scalars, "workspace.data", "nullptr"]
