"""The sets of tensors that a candidate runs over: the problem's as they lie, and its twins."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.plan import Buffer, LaunchPlan, TensorSpec, Zero
from autotune.devices.twin import Placement, make_twin
from autotune.ops.expected import Expectation
from autotune.ops.op import Op

WRONG = 0x55
"""As every byte of outputs before a second run: 85.3 in fp16, 1.5e13 in bf16 and fp32."""

_NAN = 0xFF


@dataclass(frozen=True)
class Side:
    """Launches over one set of tensors, with what they hold and what must come out.

    `gap`: the bytes that outputs hold between their tensors; `label` tells of the other side's runs.
    """

    plan: LaunchPlan
    tensors: tuple[TensorSpec, ...]
    expected: Expectation
    gap: int = _NAN
    label: str = ""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.role == "output")

    @property
    def own(self) -> tuple[Buffer, ...]:
        """The buffers that the other side does not use."""
        return tuple(buffer for buffer in self.plan.buffers if buffer.role != "workspace")

    def buffers(self, role: str) -> tuple[Buffer, ...]:
        """Of its own buffers those of a role."""
        return tuple(buffer for buffer in self.own if buffer.role == role)

    def between(self, storage: str) -> int:
        """The byte that an output must hold outside of its tensors after a run."""
        zeroed = {step.buffer for step in self.plan.steps if isinstance(step, Zero)}
        return 0 if storage in zeroed else self.gap


def own_side(op: Op, plan: LaunchPlan, expected: Expectation) -> Side:
    """The problem as it lies."""
    return Side(plan, op.tensors(expected.problem), expected)


def sides_of(
    op: Op, plan: LaunchPlan, expected: Expectation, hard: Expectation | None, placements: Sequence[Placement]
) -> tuple[Side, ...]:
    """The problem as it lies, and its twins but for those that would be the same."""
    sides = [own_side(op, plan, expected)]
    for placement in placements:
        twin = make_twin(plan, sides[0].tensors, placement)
        if twin is not None and (twin.moved or (hard and len(sides) == 1)):
            kinds = filter(None, ("hard inputs" if hard else "", placement.words if twin.moved else ""))
            label = f"run again over other values, with {' and '.join(kinds)}: "
            sides.append(Side(twin.plan, twin.tensors, hard or expected, WRONG, label))
    return tuple(sides)
