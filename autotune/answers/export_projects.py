"""Exports that become part of another project: one header for C++, or a folder that PyTorch builds as an extension."""

import re
import shlex
from itertools import pairwise
from typing import Any

from autotune.answers.best import Best
from autotune.answers.export_launcher import Launcher
from autotune.answers.export_maps import shape_in_cpp
from autotune.answers.export_text import heading, kernel_code, launcher_context, nvcc_options, rendered
from autotune.core.dtypes import DTYPES
from autotune.core.errors import UsageError
from autotune.core.plan import TensorSpec
from autotune.ops.op import Op
from autotune.ops.registry import get_op

_SYSTEM_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<[^>\n]*>[^\n]*$", re.MULTILINE)
_C_KERNEL = re.compile(r'extern\s+"C"\s+(?=[^;{}()]*__global__)')
_UNDEFINED_BY_PYTORCH = ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
"""What PyTorch's builds forbid and kernels use: their `__CUDA_NO_…__` are taken back."""


def function_of(stem: str) -> str:
    """The launcher's name, from that of the file or folder: several exports can be part of one project.

    Raises:
        UsageError: it has no letter to begin with.
    """
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    if not re.match(r"[A-Za-z_]", name):
        raise UsageError(f"functions are named after the file, and {stem!r} does not begin with a letter")
    return name


def header_compile_line(found: Best, path: str) -> str:
    """The command that compiles a header's kernels into an object file, without a file that includes it."""
    stem = path.rpartition("/")[2].removesuffix(".h")
    macro = f"{_guard(function_of(stem))}_IMPLEMENTATION"
    built = shlex.quote(path.removesuffix(".h") + ".o")
    return f"nvcc {nvcc_options(found)} -x cu -D{macro} -c {shlex.quote(path)} -o {built}"


def header_text(found: Best, file_name: str) -> str:
    """One header: declarations for any number of C++ files, the kernels for one that nvcc compiles.

    Raises:
        UsageError: no function can be named after the file.
        TemplateError: the launch section does not agree with the kernels.
    """
    name = function_of(file_name.removesuffix(".h"))
    more = [
        f"use:            include it wherever {name} is called; compile it once, by the command above or in a .cu",
        f"                file that defines {_guard(name)}_IMPLEMENTATION before it includes it",
    ]
    return heading(found, header_compile_line(found, file_name), more) + _header(found, name)


def torch_files(found: Best, folder: str) -> dict[str, str]:
    """Texts by file name of a folder that is a Python package: `from FOLDER import OP` builds and gives the function.

    Raises:
        UsageError: no function can be named after the folder, or PyTorch's tensors do not tell what the launcher asks.
        TemplateError: the launch section does not agree with the kernels.
    """
    name, op = function_of(folder), get_op(found.problem.op)
    launcher = Launcher(found.template, op, found.problem, found.source, found.device)
    binding = _binding(launcher, op, found)
    compiled = f"python {folder}/__init__.py, or its first import"
    context = {
        **launcher_context(launcher, op, found.problem, name), **binding,
        "op": op.name, "package": name, "header": f"{name}.h", "guard": _guard(name),
        "heading": heading(found, compiled, comment=""),
        "flags": [*nvcc_options(found).split(), *(f"-U__CUDA_NO_{what}__" for what in _UNDEFINED_BY_PYTORCH)],
    }  # fmt: skip
    return {
        f"{name}.h": heading(found, compiled) + _header(found, name),
        "kernels.cu": rendered("kernels.cu", context),
        "binding.cpp": rendered("binding.cpp", context),
        "__init__.py": rendered("package.py", context),
        "README.md": rendered("project.md", context),
    }


def _guard(name: str) -> str:
    return name.upper()


def _torch_name(array_name: str) -> str:
    """`torch::kBFloat16` of `bfloat16`."""
    for prefix, written in (("bfloat", "BFloat"), ("float", "Float"), ("uint", "UInt"), ("int", "Int")):
        if array_name.startswith(prefix):
            return f"torch::k{written}{array_name.removeprefix(prefix)}"
    raise UsageError(f"PyTorch has no element type {array_name}")


def _header(found: Best, name: str) -> str:
    """Without its heading. What the kernels define has a namespace, so that several headers can be compiled in one
    project, and in that another, because a function may be named like a kernel; headers of the system are included
    before they begin."""
    op = get_op(found.problem.op)
    launcher = Launcher(found.template, op, found.problem, found.source, found.device)
    context = {**launcher_context(launcher, op, found.problem, name), "scope": "kernels::"}
    kernels, host = kernel_code(found.source), rendered("launcher.cu", context)
    includes = dict.fromkeys(line.strip() for line in _SYSTEM_INCLUDE.findall(f"{kernels}\n{host}"))
    eighths = any("fp8" in declaration for declaration in context["declarations"])
    declared = ["cuda_bf16.h", "cuda_fp16.h", *(["cuda_fp8.h"] if eighths else []), "cuda_runtime_api.h"]
    return rendered(
        "header.h",
        {
            **context, "guard": _guard(name), "declared": declared, "includes": [*includes],
            "kernels": _without_includes(_C_KERNEL.sub("", kernels)), "host": _without_includes(host),
        },
    )  # fmt: skip


def _without_includes(code: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", _SYSTEM_INCLUDE.sub("", code)).strip("\n")


def _binding(launcher: Launcher, op: Op, found: Best) -> dict[str, Any]:
    """What of tensors the binding checks, makes and hands over."""
    problem = found.problem
    changed = op.in_place(problem)
    described = [_tensor(launcher, op, found, p.spec, strided=p.strided) for p in launcher.parameters]
    for tensor in described:
        tensor["changed"] = tensor["name"] in changed
    inputs = [tensor for tensor in described if tensor["role"] == "input" or tensor["changed"]]
    outputs = [tensor for tensor in described if tensor["role"] == "output" or tensor["changed"]]
    places = {
        size: f"{tensor['name']}.size({axis})"
        for tensor in reversed(inputs) for axis, size in reversed([*enumerate(tensor["shape"])])
    }  # fmt: skip
    told = [size for size in launcher.sizes if size not in places]
    values = {name: repr(float(op.scalars(problem)[name])) for name in launcher.scalars}
    results = [tensor["name"] for tensor in outputs]
    call = []
    for tensor in described:
        const = "const " if tensor["role"] == "input" and not tensor["changed"] else ""
        call.append(f"static_cast<{const}{tensor['ctype']}*>({tensor['name']}.data_ptr())")
        call += [f"Strides({tensor['name']}).of"] if tensor["strided"] else []
    names = [tensor["name"] for tensor in inputs]
    single = len(results) == 1
    return {
        "inputs": inputs,
        "outputs": outputs,
        "rank": max(len(tensor["shape"]) for tensor in described),
        "ranks": [(len(tensor["shape"]), tensor["name"]) for tensor in inputs],
        "first": names[0],
        "told": told,
        "inferred": [{"name": size, "value": places[size]} for size in launcher.sizes if size in places],
        "signature": [
            *(f"const at::Tensor& {name}" for name in names), *(f"int64_t {size}" for size in told),
            *(f"double {name}" for name in values),
        ],
        "returned": "at::Tensor" if single else f"std::tuple<{', '.join(['at::Tensor'] * len(results))}>",
        "result": results[0] if single else f"std::make_tuple({', '.join(results)})",
        "arguments": [
            *call, *launcher.sizes, *(f"static_cast<float>({name})" for name in values),
            "workspace.numel() > 0 ? workspace.data_ptr() : nullptr", "c10::cuda::getCurrentCUDAStream()",
        ],
        "python_arguments": [
            *(f'pybind11::arg("{name}")' for name in (*names, *told)),
            *(f'pybind11::arg("{name}") = {value}' for name, value in values.items()),
        ],
        "docstring": f"{op.summary[:1].upper()}{op.summary[1:]}: {', '.join(results)}.",
        "usage": f"{', '.join(results)} = {op.name}({', '.join([*names, *told])})",
    }  # fmt: skip


def _tensor(launcher: Launcher, op: Op, found: Best, spec: TensorSpec, *, strided: bool) -> dict[str, Any]:
    shape = shape_in_cpp(op, found.problem, spec.name, launcher.sizes)
    order = sorted(range(len(spec.shape)), key=lambda axis: (-spec.strides[axis], axis))
    dense = all(spec.strides[a] == spec.strides[b] * spec.shape[b] for a, b in pairwise(order))
    if shape is None or not (strided or dense):
        raise UsageError(f"{spec.name} of {op.name} has no form that PyTorch's tensors tell; export a file or a header")
    kind = DTYPES[spec.dtype]
    return {
        "name": spec.name, "role": spec.role, "ctype": kind.ctype, "dtype": _torch_name(kind.array_name),
        "shape": shape, "order": order, "inverse": [order.index(axis) for axis in range(len(order))],
        "apart": [shape[axis] for axis in order], "strided": strided,
    }  # fmt: skip
