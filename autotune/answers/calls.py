"""Calls of a kernel on a GPU, made ready for arrays of certain shapes: what is left to do is memory, stream, launch."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.answers.arrays import describe
from autotune.answers.libraries import current_stream, library_of, make_outputs, raw_stream
from autotune.answers.overlaps import Apart
from autotune.core.dtypes import torch_dtype
from autotune.core.plan import TensorSpec
from autotune.devices.driver import Driver
from autotune.devices.prepared import Prepared

LEGACY_STREAM = 1  # another name of 0


@dataclass(frozen=True)
class Call:
    """`prepared` takes the addresses of the arrays given, then of the outputs that are `missing`, then of scratch.

    `apart` looks at those given, where one of them is an output.
    """

    driver: Driver
    gpu: int
    prepared: Prepared
    tensors: Mapping[str, TensorSpec]
    outputs: tuple[str, ...]
    missing: tuple[str, ...]
    apart: Apart | None
    device: Any = None  # in the words of the arrays' library


class TorchCall:
    """All arrays are PyTorch's: memory comes from its allocator, so that calls can be captured in its graphs."""

    def __init__(self, call: Call) -> None:
        import torch

        self._call, self._prepared, self._gpu, self._apart = call, call.prepared, call.gpu, call.apart
        self._empty, self._empty_strided, self._bytes = torch.empty, torch.empty_strided, torch.uint8
        self._device = call.device
        self._current = torch._C._cuda_getDevice if hasattr(torch._C, "_cuda_getDevice") else torch.cuda.current_device
        specs = [call.tensors[name] for name in call.missing]
        apart = len({spec.storage for spec in specs}) == len(specs) and not any(spec.offset for spec in specs)
        self._made = [(s.name, s.shape, s.strides, torch_dtype(torch, s.dtype)) for s in specs] if apart else None

    def __call__(self, given: Mapping[str, Any], addresses: list[int], stream: int | None) -> dict[str, Any]:
        if self._apart is not None and tuple(addresses) not in self._apart.seen:
            self._apart.check(addresses)
        results = {name: given[name] for name in self._call.outputs if name in given}
        if self._call.missing:
            results = self._with_missing(given, results, addresses)
        self.queue(addresses, stream)
        return results

    def queue(self, addresses: list[int], stream: int | None = None) -> None:
        """Launch for tensors at these addresses, in the order in which they were given, then those that were missing.

        Raises:
            LaunchError: the driver refuses a launch, or TMA an address.
        """
        if self._prepared.workspace_bytes:
            scratch = self._empty(self._prepared.workspace_bytes, dtype=self._bytes, device=self._device)
            addresses.append(scratch.data_ptr())
        if stream is None:
            stream = raw_stream(self._gpu)
        if self._current() == self._gpu:
            self._prepared(addresses, stream)
        else:
            with self._call.driver.current(self._gpu):
                self._prepared(addresses, stream)

    def _with_missing(self, given: Mapping[str, Any], results: dict[str, Any], addresses: list[int]) -> dict[str, Any]:
        if self._made is None:  # several of them in one buffer
            made = make_outputs(next(iter(given.values())), self._call.tensors, self._call.missing)
        else:
            made = {
                name: self._empty_strided(shape, strides, dtype=dtype, device=self._device)
                for name, shape, strides, dtype in self._made
            }
        addresses += [made[name].data_ptr() for name in self._call.missing]
        return {name: results[name] if name in results else made[name] for name in self._call.outputs}


class ArrayCall:
    """Arrays of any library, on a stream of its own choice. Scratch memory is the kernel's, one a stream."""

    def __init__(self, call: Call, scratch: "Scratch") -> None:
        self._call, self._scratch = call, scratch

    def __call__(self, given: Mapping[str, Any], addresses: list[int], stream: int) -> dict[str, Any]:
        call = self._call
        if call.apart is not None and tuple(addresses) not in call.apart.seen:
            call.apart.check(addresses)
        like = next(iter(given.values()))
        made = make_outputs(like, call.tensors, call.missing) if call.missing else {}
        addresses += [describe(made[name], call.gpu, stream).address for name in call.missing]
        others = {_works_on(array) for array in given.values()} - {None, stream}
        with call.driver.current(call.gpu):  # whose streams and memory these are, whatever GPU is the thread's
            for other in others:
                call.driver.follow(stream, other or 0)
            if not call.prepared.workspace_bytes:
                call.prepared(addresses, stream)
            else:
                with self._scratch.use(call, stream) as address:
                    call.prepared([*addresses, address], stream)
        return {name: given[name] if name in given else made[name] for name in call.outputs}


def stream_of(given: Mapping[str, Any], gpu: int) -> int:
    """The stream that the first array's library works on."""
    stream = current_stream(next(iter(given.values())), gpu)
    return 0 if stream == LEGACY_STREAM else stream


def _works_on(array: Any) -> int | None:
    """The stream that an array's last work may still be on, where its interface says so."""
    if library_of(array) == "torch":
        return None
    said = (getattr(array, "__cuda_array_interface__", None) or {}).get("stream")
    return 0 if said == LEGACY_STREAM else said


@dataclass
class _Block:
    """Memory for the calls on one stream. Who has the lock queues all kernels of a call, so that none comes between."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    address: int = 0
    nbytes: int = 0

    def __enter__(self) -> int:
        return self.address

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Scratch:
    """One block of memory for each stream. A block that has become too small is kept: graphs may know its address."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], _Block] = {}

    def use(self, call: Call, stream: int) -> _Block:
        """A context that gives the block's address, and keeps others from queueing work on the stream with it.

        The GPU's context is the thread's.
        """
        block = self._blocks.setdefault((call.gpu, stream), _Block())
        block.lock.acquire()
        try:
            if block.nbytes < call.prepared.workspace_bytes:
                nbytes = 1 << (call.prepared.workspace_bytes - 1).bit_length()
                block.address, block.nbytes = call.driver.allocate(nbytes), nbytes
        except BaseException:
            block.lock.release()
            raise
        return block


def missing_outputs(given: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """Outputs for which no array is given."""
    return tuple(name for name in outputs if name not in given)
