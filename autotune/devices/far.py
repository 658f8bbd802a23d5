"""One more run on the emulator, of tensors whose offsets exceed 2^31 elements: products that are taken in 32 bits show.

Only addresses are taken for what lies between rows (memory that the system gives page by page, when it is written).
What verification downloads as a whole is here reached through views.
"""

from contextlib import closing

import numpy as np

from autotune.compilers.artifact import Artifact
from autotune.core.errors import LaunchError
from autotune.core.plan import LaunchPlan
from autotune.devices.comparison import compare_all
from autotune.devices.emulated import CpuDevice
from autotune.devices.twin import FAR, Placement, make_twin
from autotune.ops.expected import Expectation, tensor_view
from autotune.ops.op import Op


def complaint_far_away(device: CpuDevice, op: Op, expected: Expectation, artifact: Artifact, plan: LaunchPlan) -> str:
    """What is wrong with a candidate that is right on tensors nearer to one another; empty if nothing is.

    Replaces the device's buffers, and frees them.

    Raises:
        LaunchError: the machine does not give so many addresses.
    """
    return next(filter(None, (_complaint(device, op, expected, artifact, plan, placement) for placement in FAR)), "")


def _complaint(
    device: CpuDevice, op: Op, expected: Expectation, artifact: Artifact, plan: LaunchPlan, placement: Placement
) -> str:
    tensors = op.tensors(expected.problem)
    twin = make_twin(plan, tensors, placement)
    if twin is None or not twin.moved:
        return ""
    try:
        device.allocate(twin.plan.buffers)
        for here, there in zip(tensors, twin.tensors, strict=True):
            view = device.view(there)
            unwritten = np.iinfo(view.dtype).max if view.dtype.kind in "iu" else np.nan
            view[...] = tensor_view(expected.images[here.storage], here) if here.role == "input" else unwritten
        for buffer in twin.plan.buffers:
            if buffer.role == "workspace":
                device.poison(buffer.name)
        with closing(device.load(artifact, twin.plan)) as program:
            try:
                device.run(program, twin.plan)
            except LaunchError as error:
                return f"with {placement.words} elements: {error}"
        got = {tensor.name: device.view(tensor).copy() for tensor in twin.tensors if tensor.role == "output"}
        _, message = compare_all(op, expected, got, twin.plan.arithmetic)
        return message and f"with {placement.words} elements: {message}"
    finally:
        device.allocate(())
