"""Which problem arrays are of: an op's fields read off their shapes."""

from collections.abc import Mapping
from functools import cached_property

from autotune.core.errors import UsageError
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.ops.op import Op

Shapes = Mapping[str, tuple[int, ...]]


class ShapeReader:
    """Problems that differ from a first one in lengths alone.

    Nobody says which axis is which field, so the op is asked twice: an extent that equals a field, and doubles with
    it, is that field. Fields that the answer must match exactly (head size, dtype, mask) stay as they are.
    """

    def __init__(self, op: Op, problem: Problem) -> None:
        self._op, self._problem = op, problem
        self._tensors = {tensor.name: tensor for tensor in op.tensors(problem)}

    def problem(self, shapes: Shapes) -> Problem:
        """The problem of arrays of these shapes.

        Raises:
            UsageError: a shape is that of no problem, or does not go with the others.
        """
        if all(shape == self._tensors[name].shape for name, shape in shapes.items()):
            return self._problem
        for name, shape in shapes.items():
            if 0 in shape:
                raise UsageError(f"{name} has shape {shape}: of an empty array nothing is computed, skip such calls")
        changes = dict(self._fields_of(shapes))
        for field in self._op.fields:  # what no axis tells follows the field whose default it takes
            source = field.default_from
            if (
                field.name not in self._axes
                and source in changes
                and self._problem[field.name] == self._problem[source]
            ):
                changes[field.name] = changes[source]
        found = self._op.problem(**{**self._problem.fields, **changes})
        expected = {tensor.name: tensor for tensor in self._op.tensors(found)}
        for name, shape in shapes.items():
            if shape != expected[name].shape:
                own, theirs = self._tensors[name].shape, expected[name].shape
                said = ", ".join(f"{field}={value}" for field, value in changes.items())
                takes = f"{own}" if theirs == own else f"{own}, or {theirs}"
                why = f" with {said} as the other arrays have it" if said else ""
                raise UsageError(f"{name} has shape {shape}; the kernel takes {takes}{why}")
        return found

    def _fields_of(self, shapes: Shapes) -> list[tuple[str, int]]:
        found = []
        for field, places in self._axes.items():
            for name, axis in places:
                if name in shapes and len(shapes[name]) == len(self._tensors[name].shape):
                    found.append((field, shapes[name][axis]))
                    break
        return found

    @cached_property
    def _axes(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """By field the places (tensor, axis) that have its value."""
        axes = {}
        for field in self._op.fields:
            if field.kind == "int" and field.name not in self._op.exact_fields:
                value = self._problem.integer(field.name)
                doubled = self._op.tensors(self._problem.replace(**{field.name: 2 * value}))
                places = tuple(place for tensor in doubled for place in self._places(tensor, value))
                if places:
                    axes[field.name] = places
        return axes

    def _places(self, doubled: TensorSpec, value: int) -> list[tuple[str, int]]:
        pairs = zip(self._tensors[doubled.name].shape, doubled.shape, strict=True)
        return [(doubled.name, axis) for axis, sizes in enumerate(pairs) if sizes == (value, 2 * value)]
