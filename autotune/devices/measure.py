"""Verify, then time: what happens to one built candidate on a device. Runs inside the worker process."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.core.errors import DeviceRefused, LaunchError
from autotune.core.measurement import Energy, Timing, Verification
from autotune.core.outcome import Outcome
from autotune.core.plan import Buffer, LaunchPlan, TensorSpec, Zero
from autotune.core.words import format_ms
from autotune.devices.comparison import compare_all, holds, joined, updated
from autotune.devices.emulated import CpuDevice
from autotune.devices.far import complaint_far_away
from autotune.devices.metering import middle
from autotune.devices.protocol import Device, Metered, Program, TimingBudget
from autotune.devices.twin import GAPS, Placement, make_twin
from autotune.ops.expected import Expectation, covered, storage_images, tensor_view
from autotune.ops.op import Op

Storages = Mapping[str, NDArray[Any]]
"""Downloaded buffers by name, 1-D."""

_NAN = 0xFF
_BETWEEN = 3.0  # between the second run's inputs: families compute again what comes out as NaN, and right
_WRONG = 0x55  # as every byte: 85.3 in fp16, 1.5e13 in bf16 and fp32
_LEFT_OVER = 0x44  # 4.3 in fp16, 785 in bf16 and fp32: what a workspace may hold, and no reason to compute a row again

_OTHER_BITS = "run again it gives other bits, though its family says that it is deterministic"

_FINAL_SECONDS = 0.2  # a finalist's rounds are several
_COLD_FACTOR, _COLD_MS = 1.25, 0.1  # how much slower a first run may be than the limit for warm ones


@dataclass(frozen=True)
class Verdict:
    """How one candidate fared: the part of a `Measurement` that the device decides."""

    outcome: Outcome
    message: str = ""
    timing: Timing | None = None
    verification: Verification | None = None
    energy: Energy | None = None  # where it was worth measuring


@dataclass(frozen=True)
class _Side:
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


class Bench:
    """A device with one problem's inputs on it; evaluates candidates one after the other.

    Inputs stay on the device between candidates and are checked to be unchanged after each that is verified: all but
    those whose first run is so slow that they cannot win.

    Args:
        expectation: of the inputs that candidates are timed on.
        hard: of the same problem with the op's hard inputs, for the second run; the same inputs if there are none.
    """

    def __init__(self, device: Device, op: Op, expectation: Expectation, hard: Expectation | None = None) -> None:
        self._device = device
        self._op = op
        self._expected = expectation
        self._hard = hard
        self._uploaded: dict[str, Buffer] = {}
        self._idle_w: float | None = None
        self._trusted = True  # the inputs on the device have been compared since the last run
        self._images: dict[Buffer, NDArray[Any]] = {}
        self._covered: dict[Buffer, NDArray[np.bool_] | None] = {}

    def evaluate(
        self,
        artifact: Artifact,
        plan: LaunchPlan,
        budget: TimingBudget | None,
        *,
        deterministic: bool = False,
        placements: Sequence[Placement] = (GAPS,),
    ) -> Verdict:
        """Load, verify, and time if a budget is given. A refused or failing launch becomes the verdict's outcome.

        `deterministic`: one more run must give the same bits. `placements`: of tensors, in the runs after the first.
        """
        sides = self._sides(plan, placements)
        try:
            self._place(*sides)
            with closing(self._device.load(artifact, plan)) as program:
                verdict, outputs = self._judge(program, sides, budget)
                if deterministic and verdict.outcome is Outcome.OK and not self._repeats(program, sides[0], outputs):
                    return replace(verdict, outcome=Outcome.WRONG_RESULT, message=_OTHER_BITS, timing=None)
                return verdict
        except LaunchError as error:
            self._uploaded.clear()  # who knows what it wrote before it failed
            return Verdict(Outcome.LAUNCH_ERROR, str(error))

    def move_away(self, device: CpuDevice, artifact: Artifact, plan: LaunchPlan, verdict: Verdict) -> Verdict:
        """The verdict on a candidate that is right where it was tried, after runs with offsets beyond 2^31 elements."""
        self._uploaded.clear()
        message = complaint_far_away(device, self._op, self._hard or self._expected, artifact, plan)
        return replace(verdict, outcome=Outcome.WRONG_RESULT, message=message, timing=None) if message else verdict

    def retime(self, programs: Sequence[tuple[Artifact, LaunchPlan]], rounds: int) -> tuple[Timing | None, ...]:
        """Time several verified candidates in turn, `rounds` times each, so that drift hits all alike.

        Of each candidate's rounds the one with the median median is returned; None where a launch failed.
        """
        timings: list[list[Timing]] = [[] for _ in programs]
        for _ in range(rounds):
            for (artifact, plan), collected in zip(programs, timings, strict=True):
                timing = self._time_once(artifact, plan)
                if timing is not None:
                    collected.append(timing)
        return tuple(_middle(collected) if len(collected) == rounds else None for collected in timings)

    def meter(
        self, programs: Sequence[tuple[Artifact, LaunchPlan]], rounds: int, seconds: float
    ) -> tuple[Energy | None, ...]:
        """What energy verified candidates take, in turn, `rounds` times each; of each the run with the median energy.

        None where a launch failed.

        Raises:
            DeviceRefused: this device does not tell.
        """
        if not isinstance(self._device, Metered):
            raise DeviceRefused(f"{self._device.identity.name} does not tell what energy its kernels take")
        if self._idle_w is None:
            self._idle_w = self._device.idle_power_w()
        found: list[list[Energy]] = [[] for _ in programs]
        for _ in range(rounds):
            for (artifact, plan), collected in zip(programs, found, strict=True):
                energy = self._meter_once(self._device, artifact, plan, seconds)
                if energy is not None:
                    collected.append(replace(energy, idle_w=self._idle_w))
        return tuple(middle(collected) if len(collected) == rounds else None for collected in found)

    def _meter_once(self, device: Metered, artifact: Artifact, plan: LaunchPlan, seconds: float) -> Energy | None:
        try:
            self._place(self._side(plan))
            with closing(self._device.load(artifact, plan)) as program:
                return device.energy(program, plan, seconds)
        except LaunchError:
            return None

    def _time_once(self, artifact: Artifact, plan: LaunchPlan) -> Timing | None:
        try:
            self._place(self._side(plan))
            with closing(self._device.load(artifact, plan)) as program:
                return self._device.time(program, plan, TimingBudget(max_seconds=_FINAL_SECONDS))
        except LaunchError:
            return None

    def _side(self, plan: LaunchPlan) -> _Side:
        return _Side(plan, self._op.tensors(self._expected.problem), self._expected)

    def _sides(self, plan: LaunchPlan, placements: Sequence[Placement]) -> tuple[_Side, ...]:
        """The problem as it lies, and its twins but for those that would be the same."""
        sides = [self._side(plan)]
        for placement in placements:
            twin = make_twin(plan, sides[0].tensors, placement)
            if twin is not None and (twin.moved or (self._hard and len(sides) == 1)):
                kinds = filter(None, ("hard inputs" if self._hard else "", placement.words if twin.moved else ""))
                label = f"run again over other values, with {' and '.join(kinds)}: "
                sides.append(_Side(twin.plan, twin.tensors, self._hard or self._expected, _WRONG, label))
        return tuple(sides)

    def _repeats(self, program: Program, side: _Side, known: Storages) -> bool:
        """Whether another run gives the same bits as the first."""
        self._spoil(side, known)
        self._device.run(program, side.plan)
        return all(self._device.equals(name, known[name]) for name in known)

    def _judge(
        self, program: Program, sides: tuple[_Side, ...], budget: TimingBudget | None
    ) -> tuple[Verdict, Storages]:
        """The verdict and the outputs of the first run."""
        own = sides[0]
        took = self._run_poisoned(program, own.plan)
        if took is not None and budget is not None and _hopeless(took, budget):
            self._trusted = False
            said = f"given up after its first run, unverified: {format_ms(took)} ms"
            return Verdict(Outcome.PRUNED, said, _one_run(took)), {}
        ahead = took is not None  # a GPU, whose runs take less than comparisons
        verification, message, outputs = self._verify(program, sides, ahead=ahead)
        if message and not self._trusted:  # an unverified candidate may have written to the inputs: once more
            self._uploaded.clear()
            self._place(*sides)
            self._run_poisoned(program, own.plan)
            verification, message, outputs = self._verify(program, sides, ahead=ahead)
        self._trusted = True
        if message:
            return Verdict(Outcome.WRONG_RESULT, message, None, verification), outputs
        if budget is None:
            return Verdict(Outcome.OK, "", None, verification), outputs
        timing = self._device.time(program, own.plan, budget)
        again, message = self._compare_again(own, outputs)
        if message:
            message = f"after it was timed: {message}"
            return Verdict(Outcome.WRONG_RESULT, message, None, updated(verification, again)), outputs
        outcome, message = judge_timing(timing, budget)
        kept = None if outcome is Outcome.LAUNCH_ERROR else timing
        return Verdict(outcome, message, kept, verification), outputs

    def _run_poisoned(self, program: Program, plan: LaunchPlan) -> float | None:
        """Run over outputs and workspaces of NaN; milliseconds where the device can tell."""
        for buffer in plan.buffers:
            if buffer.role != "input":
                self._device.poison(buffer.name)
        return self._device.run(program, plan)

    def _verify(self, program: Program, sides: tuple[_Side, ...], *, ahead: bool) -> tuple[Verification, str, Storages]:
        """Compare every element, run again, compare again; the text says what is wrong, empty when all is right.

        Outputs and workspaces were NaN before the first run. Before the second one both hold finite values that are
        far from right: kernels that add to what is there, blend it in, or write only what has not been written yet
        are caught, and those that compute again what NaN in a workspace has made NaN. The second run has other
        inputs, where the op knows some that show more, and every tensor that allows it has other strides. The outputs
        returned are those of the first run.

        `ahead`: the device runs in no time, so that it goes on while the results before are compared; it is not timed
        meanwhile.
        """
        own, *others = sides
        outputs = self._outputs(own)
        with ThreadPoolExecutor(1, thread_name_prefix="comparison") as beside:
            compared = [(own, beside.submit(self._compare, own, outputs))]
            for other in others:
                if not ahead and compared[-1][1].result()[1]:
                    break
                compared.append((other, beside.submit(self._compare, other, self._run_again(program, other))))
            changed = self._changed_inputs(sides) if others else ""
            verification, message = joined([(side.label, future.result()) for side, future in compared])
        if not others:
            if not message:
                self._spoil(own, outputs)
                self._leave_over(own.plan)
                self._device.run(program, own.plan)
                repeated, message = self._compare_again(own, outputs)
                message = message and f"run again over other values: {message}"
                verification = updated(verification, repeated)
            changed = self._changed_inputs(sides)
        return verification, changed or message, outputs

    def _run_again(self, program: Program, side: _Side) -> Storages:
        """What comes out on a side whose outputs hold wrong values, and workspaces what others may have left."""
        for buffer in side.own:
            if buffer.role == "output":
                self._device.poison(buffer.name, _WRONG)
        self._leave_over(side.plan)
        self._device.run(program, side.plan)
        return self._outputs(side)

    def _outputs(self, side: _Side) -> Storages:
        return {buffer.name: self._device.download(buffer.name) for buffer in side.own if buffer.role == "output"}

    def _spoil(self, side: _Side, known: Storages) -> None:
        """Wrong values in every element of the outputs; what lies between their tensors stays as it is `known`."""
        for buffer in side.own:
            if buffer.role == "output":
                inside = self._inside(side, buffer)
                if inside is None:
                    self._device.poison(buffer.name, _WRONG)
                    continue
                image = known[buffer.name].copy()
                image[inside] = np.frombuffer(bytes([_WRONG]) * image.itemsize, image.dtype)[0]
                self._device.upload(buffer.name, image)

    def _leave_over(self, plan: LaunchPlan) -> None:
        for buffer in plan.buffers:
            if buffer.role == "workspace":
                self._device.poison(buffer.name, _LEFT_OVER)

    def _compare_again(self, side: _Side, known: Storages) -> tuple[Verification | None, str]:
        """Compare the outputs that are there now, but for those that equal the `known` good ones bit for bit."""
        others = [name for name in known if not self._device.equals(name, known[name])]
        if not others:
            return None, ""
        return self._compare(side, {name: self._device.download(name) for name in others})

    def _place(self, *sides: _Side) -> None:
        """Make the sides' buffers exist, and their inputs be there."""
        self._device.allocate([*sides[0].plan.buffers, *(buffer for side in sides[1:] for buffer in side.own)])
        inputs = {buffer.name: (buffer, side) for side in sides for buffer in side.own if buffer.role == "input"}
        self._uploaded = {
            name: held for name, held in self._uploaded.items() if name in inputs and inputs[name][0] == held
        }
        for name, (buffer, side) in inputs.items():
            if name not in self._uploaded:
                self._device.upload(name, self._image(side, buffer))
                self._uploaded[name] = buffer

    def _image(self, side: _Side, buffer: Buffer) -> NDArray[Any]:
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

    def _values(self, side: _Side) -> dict[str, NDArray[Any]]:
        """The inputs in their logical shapes."""
        tensors = self._op.tensors(self._expected.problem)
        return {t.name: tensor_view(side.expected.images[t.storage], t) for t in tensors if t.role == "input"}

    def _compare(self, side: _Side, storages: Storages) -> tuple[Verification, str]:
        """Of a side's outputs those in these storages."""
        held = (tensor for tensor in side.outputs if tensor.storage in storages)
        got = {tensor.name: tensor_view(storages[tensor.storage], tensor) for tensor in held}
        verification, message = compare_all(self._op, side.expected, got, side.plan.arithmetic)
        return verification, message or self._stray_write(side, storages)

    def _stray_write(self, side: _Side, storages: Storages) -> str:
        zeroed = {step.buffer for step in side.plan.steps if isinstance(step, Zero)}
        for buffer in side.own:
            inside = self._inside(side, buffer) if buffer.name in storages else None
            if inside is not None:
                gap = 0 if buffer.name in zeroed else side.gap
                if not (holds(storages[buffer.name], gap) | inside).all():
                    return f"{buffer.name}: written outside the tensors it holds"
        return ""

    def _inside(self, side: _Side, buffer: Buffer) -> NDArray[np.bool_] | None:
        """Which elements of an output's storage belong to a tensor; None where all do."""
        if buffer not in self._covered:
            mask = covered(buffer.elements, tuple(t for t in side.outputs if t.storage == buffer.name))
            self._covered = {held: known for held, known in self._covered.items() if held.name != buffer.name}
            self._covered[buffer] = None if mask.all() else mask
        return self._covered[buffer]

    def _changed_inputs(self, sides: Sequence[_Side]) -> str:
        """What the kernel did to its inputs; all those it changed are uploaded again for the next candidate."""
        inputs = [(side, buffer) for side in sides for buffer in side.own if buffer.role == "input"]
        changed = [b.name for side, b in inputs if not self._device.equals(b.name, self._image(side, b))]
        for name in changed:
            del self._uploaded[name]
        return f"input {changed[0]} was changed" if changed else ""


def judge_timing(timing: Timing, budget: TimingBudget) -> tuple[Outcome, str]:
    """`ok`, `pruned` when it was given up as too slow, `launch_error` when the time cannot be one."""
    if not (np.isfinite(timing.median_ms) and timing.median_ms > 0.0):
        return Outcome.LAUNCH_ERROR, f"the device reported a time of {timing.median_ms} ms"
    limit = budget.give_up_above_ms
    if limit is not None and timing.min_ms > limit:
        return Outcome.PRUNED, f"given up after {timing.repeats} repeats: slower than {format_ms(limit)} ms"
    return Outcome.OK, ""


def _hopeless(first_run_ms: float, budget: TimingBudget) -> bool:
    """Whether even the first run, which is cold, was too slow by far."""
    limit = budget.give_up_above_ms
    return limit is not None and first_run_ms > _COLD_FACTOR * limit + _COLD_MS


def _one_run(ms: float) -> Timing:
    return Timing("measured", ms, ms, ms, ms, 1, "events, one cold run")


def _middle(timings: Sequence[Timing]) -> Timing | None:
    ordered = sorted(timings, key=lambda timing: timing.median_ms)
    return ordered[len(ordered) // 2] if ordered else None
