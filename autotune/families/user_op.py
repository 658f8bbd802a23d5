"""An op that a user's template declares, with a Python function as its reference.

    {#---
    op = "row_softmax"
    reference = "softmax_reference:row_softmax"   # or --reference
    inputs = "softmax_reference:inputs"           # where random numbers will not do
    [problem]
    rows = 1024
    cols = 1024
    eps = 1e-6                        # a number with a point: a float, for kernel and reference
    dtype = ["fp32", "fp16"]          # a list: the choices, the first is the default
    [tensors]
    x = { shape = ["rows", "cols"], role = "input" }
    y = { shape = ["rows", "cols"], role = "output" }
    [tolerance]
    y = { absolute = 1e-6, relative = 1e-3 }
    [cost]
    flops = "5 * rows * cols"
    ...

The reference is called as `function(problem, inputs)`: fields by name, arrays by tensor name. It returns the
outputs by tensor name (or the array, where there is one output), computed in the precision of its inputs. Tensors of
whole numbers come as int64. What kernels change in place (`role = "inout"`) is both an input and an output.
"""

import math
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from autotune.core.dtypes import DTYPES, numpy_dtype, rounded
from autotune.core.errors import ProblemError, TemplateError, UsageError
from autotune.core.plan import BEFORE, TensorSpec
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.frontmatter import FrontMatter, TensorDeclaration
from autotune.families.own_code import version_of
from autotune.families.template import Template
from autotune.families.user_functions import Function
from autotune.ops.inputs import normal, whole
from autotune.ops.op import Arrays, Bound, Field, Op, contiguous

_MOST_ELEMENTS = 2**48
_SAME = 2.0**-40  # of the largest value: what sums in another order may differ by when a reference runs again
_WIDEST = 1.0 / 8.0  # of the largest value: a bound that is wider judges nothing
_FP64_IN_FP32 = 2.0**-29  # the rounding of fp64 over that of fp32


class CustomOp(Op):
    """An op made of a template's `[problem]` and `[tensors]`, a reference function and, if given, one for inputs.

    `version` tells apart references, and functions for inputs, that do something else.

    Raises:
        TemplateError: a section is missing or contradicts itself.
    """

    error_factor = 2.0

    def __init__(
        self, template: Template, reference: Function, inputs: Function | None = None, version: str | None = None
    ) -> None:
        front = template.front
        if not any(t.role != "input" for t in front.tensors) or not front.problem:
            raise TemplateError(
                f"{template.path}: op {front.op!r} is not built in, so the front matter must declare it: "
                "[problem] with its fields and [tensors] with at least one output"
            )
        self.name, self.summary, self._front = front.op, front.summary, front
        self._reference, self._inputs = reference, inputs
        self.version = version_of(reference) if version is None else version
        self.fields = _fields(front)
        self.exact_fields = tuple(field.name for field in self.fields if field.kind != "int")

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """As declared, contiguous; one that kernels change in place as an input of its own and an output."""
        return tuple(spec for declaration in self._front.tensors for spec in _tensors(declaration, problem))

    def in_place(self, problem: Problem) -> dict[str, str]:  # noqa: ARG002
        return {t.name: t.name + BEFORE for t in self._front.tensors if t.role == "inout"}

    def scalars(self, problem: Problem) -> dict[str, float]:
        """The fields that are no whole numbers: float arguments, of a kernel and of an exported launcher."""
        return {field.name: float(problem[field.name]) for field in self.fields if field.kind == "float"}

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        """Of the user's function as far as it gives some, else standard normal, and whole numbers from -100 to 100.

        Raises:
            UsageError: the function raises, or gives something else than the tensors' values.
        """
        tensors = [t for t in self.tensors(problem) if t.role == "input"]
        given: Arrays = {} if self._inputs is None else self._given_inputs(problem, seed, tensors)
        return {
            t.name: given[t.name] if t.name in given
            else whole(t, seed + i) if DTYPES[t.dtype].is_whole else normal(t, seed + i)
            for i, t in enumerate(tensors)
        }  # fmt: skip

    def _given_inputs(self, problem: Problem, seed: int, tensors: list[TensorSpec]) -> Arrays:
        assert self._inputs is not None
        what = f"the function for inputs of op {self.name!r}"
        made = _called(what, self._inputs, problem.fields, seed)
        again = _called(what, self._inputs, problem.fields, seed)
        by_name = {t.name.removesuffix(BEFORE): t for t in tensors}
        if not isinstance(made, dict) or not isinstance(again, dict) or made.keys() - by_name.keys():
            got = sorted(map(str, made)) if isinstance(made, dict) else type(made).__name__
            raise UsageError(f"{what} must return arrays by name, some of {', '.join(by_name)}; got {got}")
        values: Arrays = {}
        for name, tensor in by_name.items():
            if name in made:
                values[tensor.name] = _stored(what, name, made[name], tensor)
                if values[tensor.name].tobytes() != _stored(what, name, again.get(name), tensor).tobytes():
                    raise UsageError(
                        f"{what} gives another {name} for the same seed: draw from numpy.random.default_rng(seed)"
                    )
        return values

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        """The function on float64 inputs, whole numbers as int64. It is called twice.

        Raises:
            UsageError: it raises, returns something else than the outputs, NaN, or other values the second time.
        """
        results, again = (self._call(problem, inputs, np.float64) for _ in range(2))
        for name, array in results.items():
            if np.isnan(array).any():
                raise UsageError(f"the reference of op {self.name!r} returns NaN in {name}: nothing could be right")
            with np.errstate(invalid="ignore"):
                apart = np.abs(array - again[name])[array != again[name]].max(initial=0.0)
            if apart > _SAME * np.abs(array[np.isfinite(array)]).max(initial=0.0):
                raise UsageError(
                    f"the reference of op {self.name!r} returns other values in {name} when it is called again with "
                    f"the same inputs, {apart:.3g} apart: it must not draw random numbers, nor keep anything"
                )
        return results

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """The function on float32 inputs, results rounded to the outputs' dtypes (of fp64: to fp32)."""
        results = self._call(problem, inputs, np.float32)
        dtypes = {tensor.name: tensor.dtype for tensor in self._outputs(problem)}
        return {
            name: array if DTYPES[dtypes[name]].is_whole else rounded(array, _least(dtypes[name]))
            for name, array in results.items()
        }

    def settle_bounds(self, problem: Problem, reference: Arrays, bounds: Mapping[str, Bound]) -> dict[str, Bound]:
        """0 for whole numbers; by `[tolerance]` where that is given; that of fp64 from fp32's, as their roundings are.

        Raises:
            UsageError: a bound without `[tolerance]` is so wide beside the values that it would judge nothing.
        """
        tolerances = dict(self._front.tolerance)
        settled: dict[str, Bound] = {}
        for tensor in self._outputs(problem):
            name, exact = tensor.name, reference[tensor.name]
            if name in tolerances:
                tolerance = tolerances[name]
                sizes = np.where(np.isfinite(exact), np.abs(exact), 0.0)
                settled[name] = tolerance.absolute + tolerance.relative * sizes
            elif DTYPES[tensor.dtype].is_whole:
                settled[name] = 0.0
            else:
                widest = float(np.max(bounds[name])) * (_FP64_IN_FP32 if tensor.dtype == "fp64" else 1.0)
                largest = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
                rounding = self.error_factor * (DTYPES[tensor.dtype].epsilon or 0.0)
                if widest > max(_WIDEST, rounding) * largest:
                    raise UsageError(
                        f"the reference of op {self.name!r} differs so much between float64 and {_least(tensor.dtype)} "
                        f"that {name} could not be judged: bound {widest:.3g} for values up to {largest:.3g}; give "
                        f"inputs of another size, or say what is right: [tolerance] {name} = {{ absolute = ... }}"
                    )
                settled[name] = widest
        return settled

    def _outputs(self, problem: Problem) -> list[TensorSpec]:
        return [tensor for tensor in self.tensors(problem) if tensor.role == "output"]

    def _call(self, problem: Problem, inputs: Arrays, kind: type) -> Arrays:
        """The function on inputs of this floating type, as float64."""
        outputs, what = self._outputs(problem), f"the reference of op {self.name!r}"
        given: Arrays = {
            name.removesuffix(BEFORE): array.astype(np.int64 if array.dtype.kind in "biu" else kind)
            for name, array in inputs.items()
        }
        results = _called(what, self._reference, problem.fields, given)
        if not isinstance(results, dict):
            results = {outputs[0].name: results}
        for tensor in outputs:
            if tensor.name not in results:
                raise UsageError(
                    f"{what} must return {tensor.name} with shape {tensor.shape}, got {sorted(map(str, results))}"
                )
        return {tensor.name: _exact(what, tensor, results[tensor.name]) for tensor in outputs}

    def flops(self, problem: Problem) -> float:
        """`[cost] flops`, else one operation an output element."""
        if self._front.flops is not None:
            flops = self._front.flops(problem.fields)
            if isinstance(flops, str):
                raise TemplateError(f"[cost] flops is {flops!r}, not a number")
            return float(flops)
        return float(sum(np.prod(t.shape) for t in self.tensors(problem) if t.role == "output"))


def _called(what: str, function: Function, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # it is the user's code
        raise UsageError(f"{what} raised {type(error).__name__}: {error}, {_where(error)}") from error


def _numbers(what: str, name: str, given: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A plain array of real numbers of this shape.

    Raises:
        UsageError: it is not one.
    """
    if isinstance(given, np.ma.MaskedArray):
        raise UsageError(f"{what} returns {name} as a masked array: what is masked has no value; give a plain array")
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:  # lists of different lengths, tensors on a GPU
        raise UsageError(f"{what} returns something else than numbers in {name}: {error}") from error
    if array.shape != shape:
        raise UsageError(f"{what} must return {name} with shape {shape}, got {array.shape}")
    if not (array.dtype.kind in "biuf" or array.dtype in _SMALL):
        raise UsageError(
            f"{what} returns something else than numbers in {name}: an array of {array.dtype}; real numbers are needed"
        )
    return array


_SMALL = tuple(np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))


def _exact(what: str, tensor: TensorSpec, given: Any) -> NDArray[np.float64]:
    """A reference's result as float64.

    Raises:
        UsageError: it is no array of real numbers that says exactly what is right.
    """
    name, dtype = tensor.name, DTYPES[tensor.dtype]
    array = _numbers(what, name, given, tensor.shape)
    if array.dtype in _SMALL or array.dtype == np.float16:
        raise UsageError(
            f"{what} returns {name} as {array.dtype}, so rounded that kernels cannot be judged by it; compute in the "
            "precision of the inputs, which are float64, and return that"
        )
    values = array.astype(np.float64)
    if dtype.is_whole:
        _require_whole(what, name, array, tensor.dtype)
    elif dtype.saturates:
        largest = float(ml_dtypes.finfo(numpy_dtype(tensor.dtype)).max)  # type: ignore[no-untyped-call]
        values = np.clip(values, -largest, largest)
    return values


def _require_whole(what: str, name: str, array: NDArray[Any], dtype: str) -> None:
    """Raise UsageError unless all are whole numbers that the dtype holds and float64 tells apart."""
    limits = np.iinfo(numpy_dtype(dtype))
    low, high = max(limits.min, -(2**53)), min(limits.max, 2**53)
    with np.errstate(invalid="ignore"):
        wrong = (array != np.floor(array)) if array.dtype.kind == "f" else np.zeros(array.shape, np.bool_)
        wrong |= ~((array >= low) & (array <= high))
    if wrong.any():
        at = tuple(int(axis) for axis in np.argwhere(wrong)[0])
        raise UsageError(
            f"{what} returns {array[at]} in {name}{list(at)}, which is {dtype}: whole numbers from {low} to {high}"
        )


def _stored(what: str, name: str, given: Any, tensor: TensorSpec) -> NDArray[Any]:
    """A user's input in the tensor's dtype."""
    array = _numbers(what, name, given, tensor.shape)
    if DTYPES[tensor.dtype].is_whole:
        _require_whole(what, name, array, tensor.dtype)
    return array.astype(numpy_dtype(tensor.dtype))


def _least(dtype: str) -> str:
    """What a low-precision result is rounded to: fp64 is judged by fp32's errors, made smaller."""
    return "fp32" if dtype == "fp64" else dtype


def _fields(front: FrontMatter) -> tuple[Field, ...]:
    fields = [_field(name, value) for name, value in front.problem]
    if not any(field.name == "dtype" for field in fields):
        fields.append(Field("dtype", "choice", "fp32", choices=("fp32",), help="element type"))
    return tuple(fields)


def _field(name: str, value: Value | tuple[str, ...]) -> Field:
    if isinstance(value, tuple) and value:
        return Field(name, "choice", value[0], choices=_choices(name, value))
    if name == "dtype":
        raise TemplateError(f"[problem] dtype={value!r} must list some of {', '.join(DTYPES)}")
    if isinstance(value, bool):
        return Field(name, "bool", value)
    if isinstance(value, int):
        return Field(name, "int", value)
    if isinstance(value, float) and math.isfinite(value):
        return Field(name, "float", value)
    raise TemplateError(f"[problem] {name}={value!r}: a field is a number, a boolean or a list of texts")


def _choices(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    known = tuple(DTYPES) if name == "dtype" else None
    for value in values:
        if not isinstance(value, str) or (known is not None and value not in known):
            said = f"one of {', '.join(known)}" if known is not None else "a text"
            raise TemplateError(f"[problem] {name} lists {value!r}, which is not {said}")
    return values


def _tensors(declaration: TensorDeclaration, problem: Problem) -> Iterator[TensorSpec]:
    """A tensor; of one that is changed in place first what it begins with."""
    shape = tuple(size.whole(problem.fields) for size in declaration.shape)
    if min(shape) < 1 or math.prod(shape) > _MOST_ELEMENTS:
        raise ProblemError(f"tensor {declaration.name} of {problem} would have shape {shape}")
    dtype = problem.dtype if declaration.dtype == "dtype" else declaration.dtype
    name, strides = declaration.name, contiguous(shape)
    if declaration.role != "output":
        first = name + BEFORE if declaration.role == "inout" else name
        yield TensorSpec(first, shape, strides, dtype, "input", first)
    if declaration.role != "input":
        yield TensorSpec(name, shape, strides, dtype, "output", name)


def _where(error: BaseException) -> str:
    """Where the user's code was when it raised, not the library it had called: `reference.py, line 7`."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_foreign(frame.filename)]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"


def _is_foreign(file: str) -> bool:
    """A library's file, this one, or what a library made on the fly; a notebook's cell and `<stdin>` are the user's."""
    made = file.startswith("<") and not file.startswith(("<stdin", "<ipython", "<cell"))
    return made or "site-packages" in file or Path(file).is_relative_to(Path(__file__).parents[1])
