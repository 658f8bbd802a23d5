"""What a kernel asks of the library whose arrays it gets: memory for results, and the stream that work goes on."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from autotune.answers.arrays import is_on_device
from autotune.core.dtypes import numpy_dtype, torch_dtype
from autotune.core.errors import UsageError
from autotune.core.plan import TensorSpec


def library_of(array: Any) -> str:
    """`torch`, `cupy`, `jax`, …: the package that an array's type is of, or is derived from."""
    if hasattr(array, "data_ptr"):
        return "torch"
    roots = [kind.__module__.partition(".")[0] for kind in type(array).__mro__]
    return next((root for root in roots if root in {"cupy", "pycuda", "jax", "jaxlib", "numpy"}), roots[0])


def current_stream(array: Any, gpu: int) -> int:
    """The handle of the stream that the array's library works on; 0: the legacy default stream."""
    library = library_of(array)
    if library == "torch":
        return raw_stream(gpu)
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream(gpu).ptr)
    interface = getattr(array, "__cuda_array_interface__", None) or {}
    return int(interface.get("stream") or 0)


def stream_handle(stream: Any) -> int:
    """A stream that a caller names: a handle, or an object of PyTorch, CuPy, PyCUDA, Numba or `cuda.core`.

    Raises:
        UsageError: it is none.
    """
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    if isinstance(stream, int):
        return stream
    raise UsageError(f"stream={stream!r} is no stream: pass its handle, or an object of PyTorch, CuPy or PyCUDA")


def raw_stream(gpu: int) -> int:
    """PyTorch's current stream on a GPU."""
    quick = _quick_stream()
    return int(quick(gpu)) if quick else int(sys.modules["torch"].cuda.current_stream(gpu).cuda_stream)


@cache
def _quick_stream() -> Any:
    """What PyTorch's own compiler calls in place of making an object each time, where this version has it."""
    return getattr(sys.modules["torch"]._C, "_cuda_getCurrentRawStream", None)


def make_outputs(like: Any, tensors: Mapping[str, TensorSpec], names: Sequence[str]) -> dict[str, Any]:
    """New arrays for outputs, made by the library of `like` where that array lies.

    PyTorch's and CuPy's are laid out as the problem says, those of other libraries are contiguous.

    Raises:
        UsageError: it is not known how that library makes arrays.
    """
    library = library_of(like)
    if library == "torch":
        return _torch_outputs(like, tensors, names)
    if library == "cupy":
        with like.device:  # not every version's arrays have the array API's namespace, nor are all on the current GPU
            return {name: _ordered(sys.modules["cupy"], tensors[name]) for name in names}
    if library == "pycuda":
        gpuarray = sys.modules["pycuda.gpuarray"]
        return {name: gpuarray.empty(tensors[name].shape, numpy_dtype(tensors[name].dtype)) for name in names}
    if library in {"jax", "jaxlib"} and is_on_device(like):
        made = {name: _jax_empty(like, tensors[name]) for name in names}
        return {name: array.block_until_ready() for name, array in made.items()}  # JAX fills them, on its own stream
    raise UsageError(f"pass arrays for the outputs as well: {', '.join(names)}")


def _jax_empty(like: Any, tensor: TensorSpec) -> Any:
    empty: Any = sys.modules["jax.numpy"].empty
    return empty(tensor.shape, dtype=numpy_dtype(tensor.dtype), device=like.sharding)


def _torch_outputs(like: Any, tensors: Mapping[str, TensorSpec], names: Sequence[str]) -> dict[str, Any]:
    import torch

    sizes: dict[str, int] = {}
    for name in names:
        t = tensors[name]
        sizes[t.storage] = max(sizes.get(t.storage, 0), t.extent)
    dtypes = {tensors[n].storage: torch_dtype(torch, tensors[n].dtype) for n in names}
    storages = {s: torch.empty(sizes[s], dtype=d, device=like.device) for s, d in dtypes.items()}
    placed = ((name, tensors[name]) for name in names)
    return {name: storages[t.storage].as_strided(t.shape, t.strides, t.offset) for name, t in placed}


def _ordered(library: Any, tensor: TensorSpec) -> Any:
    """An array whose axes lie in memory in the order of the tensor's strides."""
    axes = sorted(range(len(tensor.shape)), key=lambda axis: -tensor.strides[axis])
    made = library.empty(tuple(tensor.shape[axis] for axis in axes), dtype=numpy_dtype(tensor.dtype))
    return made.transpose([axes.index(axis) for axis in range(len(axes))])
