"""Arrays of any library: where they lie, in what shape, and how they enter a launch plan."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.answers import dlpack
from autotune.core.dtypes import DTYPES, numpy_dtype
from autotune.core.errors import UsageError
from autotune.core.plan import Arg, Launch, LaunchPlan, PointerArg, Step, TensorMapArg, TensorSpec, ViewArg
from autotune.ops.op import contiguous

_TORCH = {f"torch.{dtype.array_name}": name for name, dtype in DTYPES.items()}
_NUMPY = {dtype.array_name: name for name, dtype in DTYPES.items()}
_TYPESTR = {dtype.typestr: name for name, dtype in DTYPES.items() if dtype.typestr is not None}


@dataclass(frozen=True)
class DeviceArray:
    """Address, shape, element strides and dtype of an array, and its GPU; None: it lies in the host's memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    gpu: int | None = 0
    read_only: bool = False


def describe(array: Any, gpu: int = 0, stream: int | None = None) -> DeviceArray:
    """Where an array lies: of PyTorch, NumPy, or any library with `__cuda_array_interface__` or DLPack.

    `gpu`: the one meant where an interface does not say it. `stream`: where the array will be used, for DLPack.

    Raises:
        UsageError: no such array, or an element type that no kernel takes.
    """
    if hasattr(array, "data_ptr"):
        dtype = _named(_TORCH, str(array.dtype))
        index = array.get_device()
        place = None if index < 0 else index
        return DeviceArray(array.data_ptr(), tuple(array.shape), tuple(array.stride()), dtype, place)
    if isinstance(array, np.ndarray):
        dtype, size = _named(_NUMPY, array.dtype.name), array.itemsize
        strides = tuple(stride // size for stride in array.strides)
        return DeviceArray(array.ctypes.data, array.shape, strides, dtype, None, not array.flags.writeable)
    interface = _interface(array)
    if interface is not None and interface["typestr"] in _TYPESTR:
        dtype = _TYPESTR[interface["typestr"]]
        shape = tuple(interface["shape"])
        nbytes = interface.get("strides")
        strides = contiguous(shape) if nbytes is None else tuple(s // DTYPES[dtype].size for s in nbytes)
        address, kept = interface["data"]
        return DeviceArray(int(address), shape, strides, dtype, gpu, bool(kept) and not _says_so_always(array))
    if hasattr(array, "__dlpack__"):  # also where the other interface has no name for the element type: bf16
        on_gpu = _dlpack_kind(array) in (dlpack.CUDA, dlpack.CUDA_MANAGED)
        said = dlpack.exported(array, (stream or 0) if on_gpu else None)
        place, kept = said.device_id if on_gpu else None, said.read_only and not _says_so_always(array)
        return DeviceArray(said.address, said.shape, said.strides, said.dtype, place, kept)
    if interface is not None:
        _named(_TYPESTR, interface["typestr"])
    raise UsageError(
        f"{type(array).__name__} is no array: kernels take those of PyTorch and NumPy, and what has "
        "__cuda_array_interface__ or __dlpack__"
    )


def is_on_device(array: Any) -> bool:
    """Whether an array lies on a GPU."""
    if hasattr(array, "is_cuda"):
        return bool(array.is_cuda)
    if isinstance(array, np.ndarray):
        return False
    return _interface(array) is not None or _dlpack_kind(array) in (dlpack.CUDA, dlpack.CUDA_MANAGED)


def is_read_only(array: Any) -> bool:
    """Whether an array's library says that it must not be written."""
    return not array.flags.writeable if isinstance(array, np.ndarray) else describe(array).read_only


def _says_so_always(array: Any) -> bool:
    """JAX calls all its arrays read-only, those that are made for results as well."""
    return type(array).__module__.partition(".")[0] in {"jax", "jaxlib"}


def host_view(array: Any) -> NDArray[Any]:
    """An array in the host's memory as NumPy sees it; not a copy.

    Raises:
        UsageError: as `describe`.
    """
    if isinstance(array, np.ndarray):
        return array
    said = describe(array)
    dtype = numpy_dtype(said.dtype)
    if 0 in said.shape:
        return np.empty(said.shape, dtype)
    last = sum((n - 1) * stride for n, stride in zip(said.shape, said.strides, strict=True))
    memory: Any = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(said.address)
    return np.ndarray(said.shape, dtype, memory, strides=tuple(stride * dtype.itemsize for stride in said.strides))


def _interface(array: Any) -> Any:
    try:
        return array.__cuda_array_interface__
    except (AttributeError, RuntimeError, TypeError, ValueError):  # some raise for arrays on the CPU, or of bf16
        return None


def _dlpack_kind(array: Any) -> int:
    asked = getattr(array, "__dlpack_device__", None)
    return dlpack.CPU if asked is None else int(asked()[0])


def _named(known: Mapping[str, str], name: str) -> str:
    if name not in known:
        raise UsageError(f"element type {name} is not supported; kernels take {', '.join(known.values())}")
    return known[name]


def bind(plan: LaunchPlan, tensors: Mapping[str, TensorSpec], arrays: Mapping[str, DeviceArray]) -> LaunchPlan:
    """The plan with every tensor argument pointing at its own array: storage and name are then the same.

    Raises:
        UsageError: the kernel takes a plain pointer where the array is laid out differently.
    """
    return replace(plan, steps=tuple(_bind_step(step, tensors, arrays) for step in plan.steps))


def _bind_step(step: Step, tensors: Mapping[str, TensorSpec], arrays: Mapping[str, DeviceArray]) -> Step:
    if isinstance(step, Launch):
        return replace(step, args=tuple(_bind_arg(arg, tensors, arrays) for arg in step.args))
    members = [name for name, tensor in tensors.items() if tensor.storage == step.buffer]
    if members:
        raise UsageError(f"this kernel clears {step.buffer} by itself, which works on its own buffers alone")
    return step


def _bind_arg(arg: Arg, tensors: Mapping[str, TensorSpec], arrays: Mapping[str, DeviceArray]) -> Arg:
    if isinstance(arg, ViewArg):
        return replace(arg, storage=arg.name, offset=0, strides=arrays[arg.name].strides)
    if isinstance(arg, TensorMapArg) and arg.role != "workspace":
        strides = tuple(arrays[arg.name].strides[axis] * step for axis, step in arg.axes)
        return replace(arg, storage=arg.name, offset=0, strides=strides)
    if isinstance(arg, PointerArg) and arg.role != "workspace":
        if _steps(arrays[arg.name].shape, arrays[arg.name].strides) != _steps(
            tensors[arg.name].shape, tensors[arg.name].strides
        ):
            raise UsageError(
                f"{arg.name} has strides {arrays[arg.name].strides}; "
                f"this kernel takes it with {tensors[arg.name].strides} only"
            )
        return replace(arg, storage=arg.name, offset=0)
    return arg


def _steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of axes with more than one index; libraries give the others any."""
    return tuple(stride for extent, stride in zip(shape, strides, strict=True) if extent > 1)
