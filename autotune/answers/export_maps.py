"""Tensor maps as C++: what an exported launcher asks the driver to encode before it launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.core.dtypes import DTYPES
from autotune.core.plan import TMA_SWIZZLES
from autotune.core.problem import Problem
from autotune.ops.op import Op


@dataclass(frozen=True)
class MapCode:
    """A tensor map; sizes are C++, the contiguous dimension first."""

    name: str
    data: str
    dtype: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[str, ...]
    swizzle: int
    anywhere: bool = False

    @property
    def kind(self) -> str:
        """The driver's number of its type, an element's bytes, the driver's number of its swizzle."""
        dtype = DTYPES[self.dtype]
        return f"{dtype.tensor_map}, {dtype.size}, {TMA_SWIZZLES[self.swizzle]}"


def shape_in_cpp(op: Op, problem: Problem, tensor: str, sizes: Sequence[str]) -> tuple[str, ...] | None:
    """A tensor's shape over the problem's fields `sizes`; None where an extent is neither one of them nor fixed.

    Ops say shapes as numbers. An extent that equals a field and doubles when that field alone is doubled is the field;
    one that equals a field divided by another, and doubles with the first alone, is their quotient.
    """
    before = _shape(op, problem, tensor)
    doubled = {name: _shape(op, problem.replace(**{name: 2 * problem.integer(name)}), tensor) for name in sizes}
    found = []
    for axis, extent in enumerate(before):
        names = [name for name, shape in doubled.items() if shape[axis] != extent]
        if not names:
            found.append(str(extent))
        elif len(names) == 1 and problem.integer(names[0]) == extent and doubled[names[0]][axis] == 2 * extent:
            found.append(names[0])
        else:
            quotient = _quotient(problem, extent, {name: doubled[name][axis] for name in names})
            if quotient is None:
                return None
            found.append(quotient)
    return tuple(found)


def _quotient(problem: Problem, extent: int, doubled: Mapping[str, int]) -> str | None:
    for over in doubled:
        for under in doubled.keys() - {over}:
            whole = problem.integer(over) == extent * problem.integer(under)
            if len(doubled) == 2 and whole and doubled[over] == 2 * extent and doubled[under] == extent // 2:
                return f"{over} / {under}"
    return None


def _shape(op: Op, problem: Problem, tensor: str) -> tuple[int, ...]:
    return next(t.shape for t in op.tensors(problem) if t.name == tensor)
