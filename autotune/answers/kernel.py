"""A tuned kernel as a callable: `autotune.kernel(op="forward", T=1024)(q=…, k=…, v=…)`.

On a GPU it takes PyTorch tensors, or anything with `__cuda_array_interface__`, where they lie: any strides, no copy.
With NumPy arrays it copies to the device and back, on the GPU or on the emulator.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autotune.answers.arrays import DeviceArray, bind, describe, is_on_device
from autotune.answers.best import Best
from autotune.answers.lookup import best
from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import DTYPES, numpy_dtype, torch_dtype
from autotune.core.errors import DeviceMissing, UsageError
from autotune.core.plan import LaunchPlan, TensorSpec
from autotune.core.values import Value
from autotune.devices.protocol import Device, Program
from autotune.families.user_functions import Function, Named
from autotune.ops.expected import tensor_view
from autotune.ops.op import Op
from autotune.ops.registry import get_op


class Kernel:
    """The best configuration of one problem, built and loaded. Calls are asynchronous for arrays on the device.

    Not for use from several threads at once: workspaces are the kernel's own and used by every call.
    """

    def __init__(self, found: Best, device: Device) -> None:
        self.best = found
        self._device = device
        self._op: Op = get_op(found.problem.op)
        self._tensors = {tensor.name: tensor for tensor in self._op.tensors(found.problem)}
        self._begins = {n: self._tensors.pop(first) for n, first in self._op.in_place(found.problem).items()}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments, each of the logical shape that `shape` gives."""
        return tuple(n for n, tensor in self._tensors.items() if tensor.role == "input" or n in self._begins)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for name, tensor in self._tensors.items() if tensor.role == "output")

    def shape(self, name: str) -> tuple[int, ...]:
        """The logical shape of an argument or result; attention's is (B, NH, T, HS) in every layout."""
        return self._tensors[name].shape

    def __call__(self, **arrays: Any) -> dict[str, Any]:
        """The outputs by name.

        Args:
            arrays: every input by name, in its logical shape and dtype; outputs too, to be written in place. What the
                kernel changes in place is both.

        Raises:
            UsageError: a missing or unknown name, a wrong shape or dtype, arrays of both kinds.
            CompileError: the compiler refuses the kernel.
            LaunchError: the device refuses it.
        """
        self._check_names(arrays)
        on_device = [is_on_device(array) for array in arrays.values()]
        if any(on_device) and not all(on_device):
            raise UsageError("arrays on the GPU and NumPy arrays cannot be mixed in one call")
        return self._in_place(arrays) if any(on_device) else self._by_copy(arrays)

    @cached_property
    def _program(self) -> Program:
        return self._device.load(self._artifact, self._plan)

    @property
    def _plan(self) -> LaunchPlan:
        return self.best.plan

    @property
    def _artifact(self) -> Artifact:
        spec, cache = self._device.identity.spec, BuildCache()
        if self._device.identity.estimates:
            from autotune.emulator.building import build_emulator

            return build_emulator(self.best.source, cache)
        from autotune.compilers.nvcc import build_cubin

        return build_cubin(self.best.source, spec.arch, cache)

    def _check_names(self, arrays: Mapping[str, Any]) -> None:
        unknown = sorted(arrays.keys() - self._tensors.keys())
        missing = [name for name in self.inputs if name not in arrays]
        if unknown or missing:
            what = f"has no argument {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"
            raise UsageError(f"{self._op.name} {what}; it takes {', '.join(self.inputs)}")

    def _by_copy(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """NumPy in, NumPy out."""
        self._device.allocate(self._plan.buffers)
        images = {
            b.name: np.zeros(b.elements, numpy_dtype(b.dtype)) for b in self._plan.buffers if b.role != "workspace"
        }
        for name in self.inputs:
            tensor = self._begins.get(name, self._tensors[name])
            view = tensor_view(images[tensor.storage], tensor)
            view[...] = _checked(np.asarray(arrays[name]), tensor)
        for tensor in (*self._tensors.values(), *self._begins.values()):
            self._device.upload(tensor.storage, images[tensor.storage])
        self._device.run(self._program, self._plan)
        return {name: self._fetch(self._tensors[name], arrays.get(name)) for name in self.outputs}

    def _fetch(self, tensor: TensorSpec, into: Any) -> Any:
        result = tensor_view(self._device.download(tensor.storage), tensor)
        if into is None:
            return result
        _checked(into, tensor)[...] = result
        return into

    def _in_place(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays on the GPU: their own addresses and strides go into the launch."""
        from autotune.devices.cuda import CudaDevice

        if not isinstance(self._device, CudaDevice):
            raise DeviceMissing("arrays on a GPU need a kernel on it: autotune.kernel(..., device='cuda')")
        results = {name: arrays[name] for name in self.outputs if name in arrays}
        if len(results) < len(self.outputs):
            results = {**_allocate(next(iter(arrays.values())), self._tensors, self.outputs), **results}
        described = {name: self._describe(name, array) for name, array in {**arrays, **results}.items()}
        scratch = [buffer for buffer in self._plan.buffers if buffer.role == "workspace"]
        self._device.allocate(scratch)
        addresses = {name: array.address for name, array in described.items()}
        with _ordered(next(iter(arrays.values()))):
            self._device.enqueue(self._program, bind(self._plan, self._tensors, described), addresses)
        return results

    def _describe(self, name: str, array: Any) -> DeviceArray:
        tensor = self._tensors[name]
        described: DeviceArray = _fitting(describe(array), tensor, tensor.dtype)
        if described.address == 0 or described.address % DTYPES[tensor.dtype].size:
            raise UsageError(f"{name} lies at {described.address:#x}, which is no address of a {tensor.dtype}")
        repeated = any(n > 1 and stride == 0 for n, stride in zip(described.shape, described.strides, strict=True))
        if tensor.role == "output" and repeated:
            raise UsageError(f"{name} has strides {described.strides}: results need elements of their own to go to")
        return described


def kernel(
    op: str | None = None,
    *,
    device: str | None = None,
    db: str | Path | None = None,
    template: str | Path | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    full_precision: bool = False,
    **fields: Value,
) -> Kernel:
    """The best configuration known for a problem (see `autotune.best`), ready to be called.

    Args:
        op: `forward`, `backward`, or the op of `template`.
        device: `cuda` or `cpu` (the emulator); by default the GPU where there is one.
        db: path or URL of the database.
        template: a family of one's own.
        reference: the op's reference, where `template` declares its own op and does not name it.
        inputs: the function that makes its inputs for a search, likewise.
        full_precision: as for `autotune.best`.
        fields: of the problem.

    Raises:
        AutotuneError: as `autotune.best`; DeviceMissing for `cuda` without a GPU or PyCUDA.
    """
    from autotune.devices.factory import CpuOpener, choose_device
    from autotune.gpus.identity import DEVICES
    from autotune.gpus.present import present_gpu

    kinds = [kind for kind, known in DEVICES.items() if known.opener]
    if device is not None and device not in kinds:
        raise UsageError(f"device={device!r}: a kernel runs on {' or '.join(map(repr, kinds))}")
    chosen = device or ("cuda" if present_gpu() is not None else "cpu")
    found = best(
        op, device=chosen, db=db, template=template, reference=reference, inputs=inputs,
        full_precision=full_precision, **fields,
    )  # fmt: skip
    opener = CpuOpener(found.device) if chosen == "cpu" else choose_device(chosen)
    return Kernel(found, opener.open())


@contextmanager
def _ordered(array: Any) -> Iterator[None]:
    """Kernels go on the default stream: with PyTorch on another one, wait before and after."""
    if hasattr(array, "data_ptr"):
        import torch

        stream = torch.cuda.current_stream(array.device)
        if stream != torch.cuda.default_stream(array.device):
            stream.synchronize()
            yield
            torch.cuda.default_stream(array.device).synchronize()
            return
    yield


def _checked(array: Any, tensor: TensorSpec) -> Any:
    """A NumPy array, if it is what the kernel takes."""
    return _fitting(array, tensor, numpy_dtype(tensor.dtype))


def _fitting(array: Any, tensor: TensorSpec, dtype: Any) -> Any:
    if array.shape != tensor.shape or array.dtype != dtype:
        raise UsageError(
            f"{tensor.name} has shape {tuple(array.shape)} and dtype {array.dtype}; "
            f"the kernel takes {tensor.shape} and {dtype}"
        )
    return array


def _allocate(like: Any, tensors: Mapping[str, TensorSpec], names: tuple[str, ...]) -> dict[str, Any]:
    """New PyTorch tensors for outputs, laid out as the problem says.

    Raises:
        UsageError: the arrays are not PyTorch's, so outputs must be passed.
    """
    if not hasattr(like, "new_empty"):
        raise UsageError(f"pass arrays for the outputs as well: {', '.join(names)}")
    import torch

    sizes: dict[str, int] = {}
    for name in names:
        t = tensors[name]
        sizes[t.storage] = max(sizes.get(t.storage, 0), t.extent)
    dtypes = {tensors[n].storage: torch_dtype(torch, tensors[n].dtype) for n in names}
    storages = {s: torch.empty(sizes[s], dtype=d, device=like.device) for s, d in dtypes.items()}
    placed = ((name, tensors[name]) for name in names)
    return {name: storages[t.storage].as_strided(t.shape, t.strides, t.offset) for name, t in placed}
