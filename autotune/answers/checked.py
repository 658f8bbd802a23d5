"""What a call takes: numbers, and arrays where they lie: element types, addresses, memory that results can go to."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.answers.arrays import DeviceArray, is_read_only
from autotune.answers.overlaps import Apart, Layout, overlaps_itself
from autotune.core.dtypes import DTYPES, numpy_dtype
from autotune.core.errors import UsageError
from autotune.core.plan import TensorSpec
from autotune.ops.op import Op


def apart(described: Mapping[str, DeviceArray], tensors: Mapping[str, TensorSpec]) -> Apart | None:
    """Look at arrays on a GPU; what looks at others of their layouts, None where none of them is written.

    Raises:
        UsageError: a kernel cannot take one where it lies, or two overlap.
    """
    for name, array in described.items():
        _check_placed(array, tensors[name])
    written = [name for name in described if tensors[name].role == "output"]
    if not written:
        return None
    made = Apart({name: Layout.of(array) for name, array in described.items()}, written)
    made.check([array.address for array in described.values()])
    return made


def number(name: str, value: Any, op: Op) -> float:
    """A scalar that a call gives.

    Raises:
        UsageError: it is no finite number, or not positive where the op wants that.
    """
    try:
        found = float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}={value!r} is no number") from error
    if not np.isfinite(found) or (name in op.positive and found <= 0):
        wanted = "a positive number" if name in op.positive else "a finite number"
        raise UsageError(f"{name}={value!r} must be {wanted}")
    return found


def check_on_host(
    arrays: Mapping[str, Any],
    views: Mapping[str, NDArray[Any]],
    tensors: Mapping[str, TensorSpec],
    outputs: Collection[str],
) -> None:
    """Look at arrays in the host's memory, and at what NumPy sees of them.

    Raises:
        UsageError: a kernel cannot take one, cannot write one, or two overlap.
    """
    for name, view in views.items():
        check_dtype(tensors[name], view.dtype)
        if name in outputs:
            _check_written(name, Layout.of_view(view), view.itemsize, read_only=is_read_only(arrays[name]))
    found = Apart({name: Layout.of_view(view) for name, view in views.items()}, outputs)
    found.check([view.__array_interface__["data"][0] for view in views.values()])


def check_dtype(tensor: TensorSpec, dtype: np.dtype[Any]) -> None:
    """Raise UsageError where elements are of another type than the kernel's."""
    if dtype != numpy_dtype(tensor.dtype):
        raise UsageError(
            f"{tensor.name} has shape {tensor.shape} and dtype {dtype}; "
            f"the kernel takes {tensor.shape} and {numpy_dtype(tensor.dtype)}"
        )


def _check_placed(array: DeviceArray, tensor: TensorSpec) -> None:
    check_dtype(tensor, numpy_dtype(array.dtype))
    size = DTYPES[tensor.dtype].size
    if array.address == 0 or array.address % size:
        raise UsageError(f"{tensor.name} lies at {array.address:#x}, which is no address of a {tensor.dtype}")
    if tensor.role == "output":
        _check_written(tensor.name, Layout.of(array), size, read_only=array.read_only)


def _check_written(name: str, layout: Layout, size: int, *, read_only: bool) -> None:
    if read_only:
        raise UsageError(f"{name} is read-only: results need an array that can be written")
    if overlaps_itself(layout):
        strides = tuple(stride // size for stride in layout.strides)
        raise UsageError(f"{name} has strides {strides}, so that elements share memory: "
                         "results need elements of their own to go to")  # fmt: skip
