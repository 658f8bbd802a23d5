"""Winners as calls over PyTorch tensors, launched as `autotune.kernel` launches them, without its checks each time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import torch

from autotune.answers.arrays import bind, describe
from autotune.answers.best import Best
from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.dtypes import torch_dtype
from autotune.core.errors import UsageError
from autotune.core.plan import TensorSpec
from autotune.devices.cuda import CudaDevice
from autotune.ops.registry import get_op


def build_all(found: Iterable[Best], arch: str) -> None:
    """Fill the build cache, on all cores. What does not compile is left to whoever needs it."""
    with BuildPool(BuildCache()) as pool:
        futures: list[Future[Artifact]] = [pool.submit(CubinRequest(best.source, arch)) for best in found]
        for future in futures:
            future.exception()


def outputs_of(found: Best) -> dict[str, torch.Tensor]:
    """New tensors for the outputs, laid out as the problem says, full of NaN."""
    return {
        tensor.name: _empty(tensor) for tensor in get_op(found.problem.op).tensors(found.problem)
        if tensor.role == "output"
    }  # fmt: skip


def _empty(tensor: TensorSpec) -> torch.Tensor:
    storage = torch.full((tensor.extent,), float("nan"), dtype=torch_dtype(torch, tensor.dtype), device="cuda")
    return storage.as_strided(tensor.shape, tensor.strides, tensor.offset)


@contextmanager
def our_call(
    device: CudaDevice, found: Best, tensors: Mapping[str, torch.Tensor]
) -> Iterator[tuple[Callable[[], None], Callable[[], dict[str, torch.Tensor]]]]:
    """Within the block: a call that launches the winner once over `tensors` (inputs and outputs by name), and one that
    gives its outputs.

    A family that clears an output by itself works on its own buffers, into which the inputs are copied beforehand.

    Raises:
        CompileError: the compiler refuses the kernels.
        LaunchError: the device does.
    """
    specs = {tensor.name: tensor for tensor in get_op(found.problem.op).tensors(found.problem)}
    described = {name: describe(tensor) for name, tensor in tensors.items()}
    artifact = CubinRequest(found.source, device.identity.spec.arch).build(BuildCache())
    try:
        plan = bind(found.plan, specs, described)
    except UsageError:
        plan, addresses = found.plan, dict[str, int]()
        _copy_in(device, found, tensors, specs)
    else:
        addresses = {name: array.address for name, array in described.items()}
        device.allocate([buffer for buffer in plan.buffers if buffer.role == "workspace"])
    program = device.load(artifact, plan)

    def outputs() -> dict[str, torch.Tensor]:
        named = {name: tensor for name, tensor in tensors.items() if specs[name].role == "output"}
        return named if addresses else _copy_out(device, specs)

    try:
        yield lambda: device.enqueue(program, plan, addresses), outputs
        torch.cuda.synchronize()
    finally:
        program.close()


def _copy_in(
    device: CudaDevice, found: Best, tensors: Mapping[str, torch.Tensor], specs: Mapping[str, TensorSpec]
) -> None:
    device.allocate(found.plan.buffers)
    storages: dict[str, Any] = {}
    for name, spec in specs.items():
        if spec.role == "input":
            if spec.storage not in storages:
                nbytes = next(b for b in found.plan.buffers if b.name == spec.storage)
                storages[spec.storage] = torch.zeros(nbytes.elements, dtype=torch_dtype(torch, spec.dtype))
            storages[spec.storage].as_strided(spec.shape, spec.strides, spec.offset).copy_(tensors[name])
    for storage, values in storages.items():
        device.upload(storage, _numpy(values))


def _copy_out(device: CudaDevice, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    results = {}
    for name, spec in specs.items():
        if spec.role == "output":
            raw = torch.from_numpy(device.download(spec.storage).view("uint8"))
            whole = raw.view(torch_dtype(torch, spec.dtype)).cuda()
            results[name] = whole.as_strided(spec.shape, spec.strides, spec.offset)
    return results


def _numpy(values: torch.Tensor) -> Any:
    """A CPU tensor as the NumPy type of its elements; NumPy alone has no bf16."""
    from ml_dtypes import bfloat16

    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(bfloat16)
    return values.numpy()
