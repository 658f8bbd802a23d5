"""Front matter's launch section -> a concrete launch plan."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from autotune.core.dtypes import DTYPES
from autotune.core.errors import ExpressionError, TemplateError
from autotune.core.plan import (
    TMA_SWIZZLES,
    Arg,
    Buffer,
    Dim3,
    Launch,
    LaunchPlan,
    PointerArg,
    Role,
    ScalarArg,
    Step,
    TensorMapArg,
    TensorSpec,
    ViewArg,
    Zero,
)
from autotune.core.problem import Problem
from autotune.families.expressions import Expression
from autotune.families.frontmatter import LaunchSpec, MapAxis, TensorMapSpec, Workspace
from autotune.families.limits import MAX_CLUSTER
from autotune.families.template import Template
from autotune.ops.op import Op, contiguous

_INT_MAX = 2**31 - 1
_expression = lru_cache(maxsize=4096)(Expression)  # a look-up for other lengths reads the same texts again
_MOST_AXES = 5  # of a tensor map


def make_plan(template: Template, op: Op, problem: Problem, namespace: Mapping[str, Any]) -> LaunchPlan:
    """The plan of one configuration; `namespace` holds problem, parameters, derived names and device.

    Raises:
        TemplateError: an argument, a size or a buffer name makes no sense, or the op knows no bound for the arithmetic.
    """
    arithmetic = template.front.arithmetic
    if arithmetic not in op.arithmetics(problem):
        raise TemplateError(f"{template.path}: op {op.name!r} cannot judge arithmetic={arithmetic!r} for {problem}")
    tensors = {tensor.name: tensor for tensor in op.tensors(problem)}
    workspaces = [w for w in template.front.workspaces if w.when is None or w.when(namespace)]
    scratch = {workspace.name: _scratch(workspace, namespace) for workspace in workspaces}
    shapes = {w.name: tuple(size.whole(namespace) for size in w.shape) for w in workspaces}
    arguments = _Arguments(template, tensors, scratch, {**namespace, **op.scalars(problem)}, shapes)
    steps: list[Step] = []
    for step in template.front.steps:
        if step.when is not None and not step.when(namespace):
            continue
        if isinstance(step, LaunchSpec):
            steps.append(_launch(step, namespace, arguments))
            _require_before(steps)
        else:
            steps.append(Zero(arguments.storage(step.buffer)))
    restores = tuple((tensors[n].storage, tensors[before].storage) for n, before in op.in_place(problem).items())
    return LaunchPlan((*_storages(tensors.values()), *scratch.values()), tuple(steps), arithmetic, restores)


def with_scalars(plan: LaunchPlan, namespace: Mapping[str, Any], scalars: Mapping[str, float]) -> LaunchPlan:
    """The plan with other values of an op's float arguments; `namespace` as for `make_plan`.

    Raises:
        ExpressionError: an argument that depends on them cannot be computed.
    """

    def replaced(arg: Arg) -> Arg:
        if not isinstance(arg, ScalarArg) or arg.ctype not in ("float", "double"):
            return arg
        expression = _expression(arg.name)
        return replace(arg, value=expression({**namespace, **scalars})) if expression.names & scalars.keys() else arg

    steps = (
        replace(step, args=tuple(map(replaced, step.args))) if isinstance(step, Launch) else step for step in plan.steps
    )
    return replace(plan, steps=tuple(steps))


def _scratch(workspace: Workspace, namespace: Mapping[str, Any]) -> Buffer:
    elements = 1
    for size in workspace.shape:
        elements *= size.whole(namespace)
    dtype = namespace["dtype"] if workspace.dtype == "dtype" else workspace.dtype
    return Buffer(workspace.name, str(dtype), elements, "workspace")


def _storages(tensors: Any) -> tuple[Buffer, ...]:
    """One buffer a storage, large enough for every tensor that lives in it."""
    buffers: dict[str, Buffer] = {}
    for tensor in tensors:
        known = buffers.get(tensor.storage)
        elements = max(tensor.extent, known.elements if known else 0)
        buffers[tensor.storage] = Buffer(tensor.storage, tensor.dtype, elements, tensor.role)
    return tuple(buffers.values())


def _launch(step: LaunchSpec, namespace: Mapping[str, Any], arguments: "_Arguments") -> Launch:
    grid, block, cluster = (_dim3(sizes, namespace, step.kernel) for sizes in (step.grid, step.block, step.cluster))
    smem, args = step.smem.whole(namespace), tuple(map(arguments.parse, step.args))
    if any(blocks % part for blocks, part in zip(grid, cluster, strict=True)):
        raise TemplateError(f"kernel {step.kernel}: a grid of {grid} blocks is not made of clusters of {cluster}")
    if math.prod(cluster) > MAX_CLUSTER:
        raise TemplateError(f"kernel {step.kernel}: clusters have at most {MAX_CLUSTER} blocks, got {cluster}")
    overlaps = step.overlaps is not None and bool(step.overlaps(namespace))
    return Launch(step.kernel, grid, block, smem, args, cluster, overlaps)


def _require_before(steps: list[Step]) -> None:
    """Raise TemplateError where the last step is a launch that overlaps what is no launch of the same call."""
    *before, last = steps
    if isinstance(last, Launch) and last.overlaps and not (before and isinstance(before[-1], Launch)):
        what = f"the clearing of {before[-1].buffer}" if before and isinstance(before[-1], Zero) else "nothing"
        raise TemplateError(
            f"kernel {last.kernel}: 'overlaps' is for a launch right after another one; before it is {what}"
        )


def _dim3(sizes: tuple[Expression, ...], namespace: Mapping[str, Any], kernel: str) -> Dim3:
    values = [size.whole(namespace) for size in sizes]
    if min(values, default=1) < 1:
        raise TemplateError(f"kernel {kernel}: grid, block and cluster sizes must be at least 1, got {values}")
    x, y, z = [*values, 1, 1, 1][:3]
    return x, y, z


class _Arguments:
    """Reads the texts of a launch's `args`."""

    def __init__(
        self,
        template: Template,
        tensors: Mapping[str, TensorSpec],
        scratch: Mapping[str, Buffer],
        namespace: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._where, self._tensors, self._scratch = str(template.path), tensors, scratch
        self._namespace, self._shapes = namespace, shapes
        self._maps = {spec.name: spec for spec in template.front.tensor_maps}

    def storage(self, name: str) -> str:
        """The buffer that a tensor or workspace lives in."""
        if name in self._scratch:
            return name
        if name in self._tensors:
            return self._tensors[name].storage
        raise TemplateError(
            f"{self._where}: {name!r} is neither a tensor of the op nor a workspace; there are: {self._names()}"
        )

    def parse(self, text: str) -> Arg:
        """`q` a pointer, `q.view` a View, the name of a tensor map that map, anything else an expression."""
        if text.endswith(".view"):
            return self._view(text.removesuffix(".view"))
        if text in self._maps:
            return self._map(self._maps[text])
        if text in self._scratch:
            buffer = self._scratch[text]
            return PointerArg(text, text, 0, buffer.dtype, "workspace")
        if text in self._tensors:
            t = self._tensors[text]
            return PointerArg(text, t.storage, t.offset, t.dtype, t.role)
        return self._scalar(text)

    def _view(self, name: str) -> ViewArg:
        if name not in self._tensors:
            raise TemplateError(f"{self._where}: {name}.view: only tensors have views; there are: {self._names()}")
        t = self._tensors[name]
        return ViewArg(name, t.storage, t.offset, t.dtype, t.strides, t.role)

    def _map(self, spec: TensorMapSpec) -> TensorMapArg:
        buffer = self.storage(spec.tensor)
        role: Role
        if spec.tensor in self._scratch:
            dtype, shape, offset, role = self._scratch[buffer].dtype, self._shapes[buffer], 0, "workspace"
            strides = contiguous(shape)
        else:
            t = self._tensors[spec.tensor]
            dtype, shape, offset, strides, role = t.dtype, t.shape, t.offset, t.strides, t.role
        axes = spec.axes or tuple(MapAxis(axis) for axis in reversed(range(len(shape))))
        box = [size.whole(self._namespace) for size in spec.box]
        swizzle = spec.swizzle.whole(self._namespace)
        parts = [sorted(part.part for part in axes if part.axis == axis) for axis in range(len(shape))]
        wrong = None
        if not 1 <= len(axes) <= _MOST_AXES or len(box) > len(axes):
            wrong = f"a box {box} does not fit {len(axes)} dimensions; TMA knows 1 to {_MOST_AXES}"
        elif swizzle not in TMA_SWIZZLES:
            wrong = f"swizzle={swizzle} is none of {', '.join(map(str, TMA_SWIZZLES))}"
        elif any(found not in ([""], ["%", "//"]) for found in parts) or any(part.axis >= len(shape) for part in axes):
            wrong = f"its axes are not those of {spec.tensor}, of shape {shape}, each once"
        anywhere = spec.anywhere is not None and bool(spec.anywhere(self._namespace))
        if anywhere and (len(axes) < 3 or len(box) > 2 or any(axis.part for axis in axes) or DTYPES[dtype].size != 2):
            wrong = "rows that begin anywhere are of 16-bit elements, boxes of two of three or more whole axes"
        if wrong:
            raise TemplateError(f"tensor map {spec.name}: {wrong}")
        dimensions = [self._dimension(spec.name, axis, shape) for axis in axes]
        extents = tuple(extent for *_, extent in dimensions)
        apart = tuple(strides[axis] * step for axis, step, _ in dimensions)
        filled = (*box, *[1] * (len(axes) - len(box)))
        placed = tuple((axis, step) for axis, step, _ in dimensions)
        return TensorMapArg(
            spec.tensor, buffer, offset, dtype, extents, apart, filled, swizzle, role, placed, anywhere
        )  # fmt: skip

    def _dimension(self, name: str, axis: MapAxis, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """The tensor's axis, of how many of its strides the dimension's consists, the dimension's extent."""
        extent = shape[axis.axis]
        by = 1 if axis.by is None else axis.by.whole(self._namespace)
        if by < 1 or extent % by:
            raise TemplateError(f"tensor map {name}: {extent} indices of axis {axis.axis} cannot be split by {by}")
        if axis.part == "//":
            return axis.axis, by, extent // by
        return axis.axis, 1, by if axis.part else extent

    def _scalar(self, text: str) -> ScalarArg:
        try:
            value = _expression(text)(self._namespace)
        except ExpressionError as error:
            raise ExpressionError(
                f"{self._where}: argument {text!r}: {error}; tensors and workspaces are {self._names()}"
            ) from error
        if isinstance(value, float):
            return ScalarArg(text, "float", value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TemplateError(
                f"{self._where}: argument {text!r} is {value!r}; kernels take numbers, tensors and workspaces"
            )
        return ScalarArg(text, "int" if abs(value) <= _INT_MAX else "long long", value)

    def _names(self) -> str:
        return ", ".join([*self._tensors, *self._scratch])
