"""Outputs downloaded and compared by this machine's cores: whatever the device, and whatever is wrong with them."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.core.measurement import Verification
from autotune.core.plan import Buffer
from autotune.devices.comparison import compare_all, holds
from autotune.devices.protocol import Device
from autotune.devices.sides import Side
from autotune.ops.expected import covered, tensor_view
from autotune.ops.op import Op

Storages = Mapping[str, NDArray[Any]]
"""Downloaded buffers by name, 1-D."""


class Known(Protocol):
    """Outputs that were found to be right, to tell whether later ones are the same."""

    def differing(self) -> tuple[str, ...]:
        """Those that the device now holds otherwise, by as much as one bit."""

    def image(self, name: str) -> NDArray[Any]:
        """The whole content of an output, 1-D."""


class Downloaded:
    """Outputs as they were downloaded."""

    def __init__(self, device: Device, storages: Storages) -> None:
        self._device, self._storages = device, storages

    def differing(self) -> tuple[str, ...]:
        return tuple(name for name, known in self._storages.items() if not self._device.equals(name, known))

    def image(self, name: str) -> NDArray[Any]:
        return self._storages[name]


class HostComparison:
    """Compares every element with its reference, and looks at what lies between the tensors."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._covered: dict[Buffer, NDArray[np.bool_] | None] = {}

    def compare(self, side: Side, storages: Storages) -> tuple[Verification, str]:
        """Of a side's outputs those in these storages; the text says what is wrong, empty when nothing is."""
        held = (tensor for tensor in side.outputs if tensor.storage in storages)
        got = {tensor.name: tensor_view(storages[tensor.storage], tensor) for tensor in held}
        verification, message = compare_all(self._op, side.expected, got, side.plan.arithmetic)
        return verification, message or self._stray_write(side, storages)

    def inside(self, side: Side, buffer: Buffer) -> NDArray[np.bool_] | None:
        """Which elements of an output belong to its tensors; None where all do."""
        if buffer not in self._covered:
            mask = covered(buffer.elements, tuple(t for t in side.outputs if t.storage == buffer.name))
            self._covered = {held: known for held, known in self._covered.items() if held.name != buffer.name}
            self._covered[buffer] = None if mask.all() else mask
        return self._covered[buffer]

    def _stray_write(self, side: Side, storages: Storages) -> str:
        for buffer in side.own:
            inside = self.inside(side, buffer) if buffer.name in storages else None
            if inside is not None and not (holds(storages[buffer.name], side.between(buffer.name)) | inside).all():
                return f"{buffer.name}: written outside the tensors it holds"
        return ""
