"""What input buffers hold, byte for byte: tensors, what lies between them, and what is allocated beyond."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.plan import Buffer
from autotune.core.problem import Problem
from autotune.devices.sides import Side
from autotune.ops.expected import covered, storage_images, tensor_view
from autotune.ops.op import Op

_BETWEEN = 3.0  # between the second run's inputs: families compute again what comes out as NaN, and right


class InputImages:
    """Of a problem. The last one of each name is kept."""

    def __init__(self, op: Op, problem: Problem) -> None:
        self._op, self._problem = op, problem
        self._images: dict[Buffer, NDArray[Any]] = {}

    def of(self, side: Side, buffer: Buffer) -> NDArray[Any]:
        """What one of a side's inputs holds, 1-D."""
        if buffer not in self._images:
            self._images = {held: image for held, image in self._images.items() if held.name != buffer.name}
            if buffer.name in side.expected.images:
                image = side.expected.images[buffer.name]
            else:
                members = tuple(tensor for tensor in side.tensors if tensor.storage == buffer.name)
                image = storage_images(members, self._values(side))[buffer.name]
                image[~covered(image.size, members)] = _BETWEEN
            padding = np.frombuffer(b"\xff" * ((buffer.elements - image.size) * image.itemsize), image.dtype)
            self._images[buffer] = np.concatenate([image, padding]) if padding.size else image
        return self._images[buffer]

    def _values(self, side: Side) -> dict[str, NDArray[Any]]:
        """The inputs in their logical shapes."""
        tensors = self._op.tensors(self._problem)
        return {t.name: tensor_view(side.expected.images[t.storage], t) for t in tensors if t.role == "input"}
