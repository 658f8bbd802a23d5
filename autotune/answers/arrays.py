"""Arrays that already lie on a GPU: where, in what shape, and how they enter a launch plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune.core.dtypes import DTYPES
from autotune.core.errors import UsageError
from autotune.core.plan import Arg, Launch, LaunchPlan, PointerArg, Step, TensorMapArg, TensorSpec, ViewArg
from autotune.ops.op import contiguous

_TORCH = {f"torch.{dtype.library}": name for name, dtype in DTYPES.items()}
_TYPESTR = {dtype.typestr: name for name, dtype in DTYPES.items() if dtype.typestr is not None}


@dataclass(frozen=True)
class DeviceArray:
    """Address, shape, element strides and dtype of an array on a GPU."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


def is_on_device(array: Any) -> bool:
    """Whether it is a PyTorch tensor on a GPU, or has `__cuda_array_interface__`."""
    if hasattr(array, "is_cuda"):
        return bool(array.is_cuda)
    return hasattr(array, "__cuda_array_interface__")


def describe(array: Any) -> DeviceArray:
    """Where an array lies.

    Raises:
        UsageError: an element type that no kernel takes.
    """
    if hasattr(array, "data_ptr"):
        dtype = _named(_TORCH, str(array.dtype))
        return DeviceArray(array.data_ptr(), tuple(array.shape), tuple(array.stride()), dtype)
    interface = array.__cuda_array_interface__
    dtype = _named(_TYPESTR, interface["typestr"])
    shape = tuple(interface["shape"])
    nbytes = interface.get("strides")
    strides = contiguous(shape) if nbytes is None else tuple(s // DTYPES[dtype].size for s in nbytes)
    return DeviceArray(int(interface["data"][0]), shape, strides, dtype)


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
        if arrays[arg.name].strides != tensors[arg.name].strides:
            raise UsageError(
                f"{arg.name} has strides {arrays[arg.name].strides}; "
                f"this kernel takes it with {tensors[arg.name].strides} only"
            )
        return replace(arg, storage=arg.name, offset=0)
    return arg
