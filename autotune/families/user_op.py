"""An op that a user's template declares, with a Python function as its reference.

    {#---
    op = "row_softmax"
    [problem]
    rows = 1024
    cols = 1024
    eps = 1e-6                        # a number with a point: a float, for kernel and reference
    dtype = ["fp32", "fp16"]          # a list: the choices, the first is the default
    [tensors]
    x = { shape = ["rows", "cols"], role = "input" }
    y = { shape = ["rows", "cols"], role = "output" }
    [cost]
    flops = "5 * rows * cols"
    ...

The reference is called as `function(problem, inputs)`: fields by name, arrays by tensor name. It returns the
outputs by tensor name (or the array, where there is one output), computed in the precision of its inputs.
"""

import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from autotune.core.dtypes import OPERAND_DTYPES, rounded
from autotune.core.errors import ProblemError, TemplateError, UsageError
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.frontmatter import FrontMatter, TensorDeclaration
from autotune.families.template import Template
from autotune.ops.inputs import normal
from autotune.ops.op import Arrays, Field, Op, contiguous

Reference = Callable[[dict[str, Value], Arrays], Any]

_MOST_ELEMENTS = 2**48


class CustomOp(Op):
    """An op made of a template's `[problem]` and `[tensors]` and a reference function.

    Raises:
        TemplateError: a section is missing or contradicts itself.
    """

    error_factor = 2.0

    def __init__(self, template: Template, reference: Reference) -> None:
        front = template.front
        if not any(t.role == "output" for t in front.tensors) or not front.problem:
            raise TemplateError(
                f"{template.path}: op {front.op!r} is not built in, so the front matter must declare it: "
                "[problem] with its fields and [tensors] with at least one output"
            )
        self.name, self.summary, self._front, self._reference = front.op, front.summary, front, reference
        self.version = _source_hash(reference)
        self.fields = _fields(front)
        self.exact_fields = tuple(field.name for field in self.fields if field.kind != "int")

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """As declared, contiguous."""
        return tuple(_tensor(declaration, problem) for declaration in self._front.tensors)

    def scalars(self, problem: Problem) -> dict[str, float]:
        """The fields that are no whole numbers: float arguments, of a kernel and of an exported launcher."""
        return {field.name: float(problem[field.name]) for field in self.fields if field.kind == "float"}

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        tensors = [t for t in self.tensors(problem) if t.role == "input"]
        return {t.name: normal(t, seed + i) for i, t in enumerate(tensors)}

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        """The function on float64 inputs.

        Raises:
            UsageError: it raises, returns something else than the outputs, or NaN.
        """
        results = self._call(problem, {name: array.astype(np.float64) for name, array in inputs.items()})
        for name, array in results.items():
            if np.isnan(array).any():
                raise UsageError(f"the reference of op {self.name!r} returns NaN in {name}: nothing could be right")
        return results

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """The function on float32 inputs, results rounded to the outputs' dtypes."""
        results = self._call(problem, {name: array.astype(np.float32) for name, array in inputs.items()})
        dtypes = {tensor.name: tensor.dtype for tensor in self.tensors(problem)}
        return {name: rounded(array, dtypes[name]) for name, array in results.items()}

    def _call(self, problem: Problem, inputs: Arrays) -> Arrays:
        outputs = [tensor for tensor in self.tensors(problem) if tensor.role == "output"]
        try:
            results = self._reference(problem.fields, inputs)
        except (Exception, SystemExit) as error:  # it is the user's code
            raise UsageError(
                f"the reference of op {self.name!r} raised {type(error).__name__}: {error}, {_where(error)}"
            ) from error
        if not isinstance(results, dict):
            results = {outputs[0].name: results}
        for tensor in outputs:
            shape = np.shape(results[tensor.name]) if tensor.name in results else None
            if tensor.name not in results or shape != tensor.shape:
                raise UsageError(
                    f"the reference of op {self.name!r} must return {tensor.name} with shape {tensor.shape}, got "
                    f"{shape if tensor.name in results else sorted(results)}"
                )
        try:
            return {tensor.name: np.asarray(results[tensor.name], dtype=np.float64) for tensor in outputs}
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the reference of op {self.name!r} returns something else than numbers: {error}"
            ) from error

    def flops(self, problem: Problem) -> float:
        """`[cost] flops`, else one operation an output element."""
        if self._front.flops is not None:
            flops = self._front.flops(problem.fields)
            if isinstance(flops, str):
                raise TemplateError(f"[cost] flops is {flops!r}, not a number")
            return float(flops)
        return float(sum(np.prod(t.shape) for t in self.tensors(problem) if t.role == "output"))


def _fields(front: FrontMatter) -> tuple[Field, ...]:
    fields = [_field(name, value) for name, value in front.problem]
    if not any(field.name == "dtype" for field in fields):
        fields.append(Field("dtype", "choice", "fp32", choices=("fp32",), help="element type"))
    return tuple(fields)


def _field(name: str, value: Value | tuple[str, ...]) -> Field:
    if isinstance(value, tuple) and value:
        return Field(name, "choice", value[0], choices=_choices(name, value))
    if name == "dtype":
        raise TemplateError(f"[problem] dtype={value!r} must list some of {', '.join(OPERAND_DTYPES)}")
    if isinstance(value, bool):
        return Field(name, "bool", value)
    if isinstance(value, int):
        return Field(name, "int", value)
    if isinstance(value, float) and math.isfinite(value):
        return Field(name, "float", value)
    raise TemplateError(f"[problem] {name}={value!r}: a field is a number, a boolean or a list of texts")


def _choices(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    known = OPERAND_DTYPES if name == "dtype" else None
    for value in values:
        if not isinstance(value, str) or (known is not None and value not in known):
            said = f"one of {', '.join(known)}" if known is not None else "a text"
            raise TemplateError(f"[problem] {name} lists {value!r}, which is not {said}")
    return values


def _tensor(declaration: TensorDeclaration, problem: Problem) -> TensorSpec:
    shape = tuple(size.whole(problem.fields) for size in declaration.shape)
    if min(shape) < 1 or math.prod(shape) > _MOST_ELEMENTS:
        raise ProblemError(f"tensor {declaration.name} of {problem} would have shape {shape}")
    dtype = problem.dtype if declaration.dtype == "dtype" else declaration.dtype
    role: Any = declaration.role
    return TensorSpec(declaration.name, shape, contiguous(shape), dtype, role, declaration.name)


def _where(error: BaseException) -> str:
    """Where the user's code was when it raised, not the library it had called: `reference.py, line 7`."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and not frame.filename.startswith("<")]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"


def _source_hash(reference: Reference) -> str:
    """Hash of the file that holds the function, so that results checked against an older one do not count."""
    try:
        return hashlib.sha256(Path(inspect.getfile(reference)).read_bytes()).hexdigest()[:16]
    except (OSError, TypeError):  # made on the fly, or not in Python
        return ""


def _module(name: str, folder: Path) -> ModuleType:
    """The module; read anew where it is a file beside the template: one of that name may be known from elsewhere."""
    path = folder / f"{name}.py"
    if not path.is_file():
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None  # a .py file has one
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_reference(text: str, folder: Path) -> Reference:
    """The function named `module:function`; a file beside the template goes before an installed module.

    Raises:
        UsageError: it cannot be imported, or is not callable.
    """
    module_name, _, function_name = text.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"--reference {text!r} must be module:function")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        function = getattr(_module(module_name, folder), function_name)
    except (Exception, SystemExit) as error:  # importing runs the user's code
        raise UsageError(f"--reference {text!r} cannot be loaded: {error}") from error
    if not callable(function):
        raise UsageError(f"--reference {text!r} is not a function")
    loaded: Reference = function
    return loaded
