"""Verify, then time: what happens to one built candidate on a device. Runs inside the worker process."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace

import numpy as np

from autotune.compilers.artifact import Artifact
from autotune.core.errors import DeviceRefused, LaunchError
from autotune.core.measurement import Energy, Timing, Verification, Wrong
from autotune.core.outcome import Outcome
from autotune.core.plan import Buffer, LaunchPlan
from autotune.core.words import format_ms
from autotune.devices.comparison import joined, updated
from autotune.devices.device_comparison import DeviceComparison, Kept, Making
from autotune.devices.emulated import CpuDevice
from autotune.devices.far import complaint_far_away
from autotune.devices.host_comparison import Downloaded, HostComparison, Known, Storages
from autotune.devices.input_images import InputImages
from autotune.devices.metering import middle
from autotune.devices.protocol import Comparing, Device, Metered, Program, TimingBudget
from autotune.devices.sides import WRONG, Side, own_side, sides_of
from autotune.devices.twin import GAPS, Placement
from autotune.ops.expected import Expectation
from autotune.ops.op import Op

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


class Bench:
    """A device with one problem's inputs on it; evaluates candidates one after the other.

    Inputs stay on the device between candidates and are checked to be unchanged after each that is verified: all but
    those whose first run is so slow that they cannot win.

    Args:
        expectation: of the inputs that candidates are timed on.
        hard: of the same problem with the op's hard inputs, for the second run; the same inputs if there are none.
        making: of the device's own comparison, where it was begun before.
    """

    def __init__(
        self,
        device: Device,
        op: Op,
        expectation: Expectation,
        hard: Expectation | None = None,
        *,
        making: Making | None = None,
    ) -> None:
        self._device = device
        self._op = op
        self._expected = expectation
        self._hard = hard
        self._uploaded: dict[str, Buffer] = {}
        self._idle_w: float | None = None
        self._trusted = True  # the inputs on the device have been compared since the last run
        self._images = InputImages(op, expectation.problem)
        self._host = HostComparison(op)
        self._making = Making(device) if making is None else making
        self._here: DeviceComparison | None = None  # where outputs are compared on the device

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
        sides = sides_of(self._op, plan, self._expected, self._hard, placements)
        self._here = self._here or self._making.ready(self._device, self._op)
        try:
            self._place(*sides)
            with closing(self._device.load(artifact, plan)) as program:
                verdict, known = self._judge(program, sides, budget)
                if deterministic and verdict.outcome is Outcome.OK and not self._repeats(program, sides[0], known):
                    return replace(verdict, outcome=Outcome.WRONG_RESULT, message=_OTHER_BITS, timing=None)
                return verdict
        except LaunchError as error:
            self._doubt_all()  # who knows what it wrote before it failed
            return Verdict(Outcome.LAUNCH_ERROR, str(error))

    def move_away(self, device: CpuDevice, artifact: Artifact, plan: LaunchPlan, verdict: Verdict) -> Verdict:
        """The verdict on a candidate that is right where it was tried, after runs with offsets beyond 2^31 elements."""
        self._doubt_all()
        if self._here is not None:
            self._here.placed(())
        message = complaint_far_away(device, self._op, self._hard or self._expected, artifact, plan)
        return replace(verdict, outcome=Outcome.WRONG_RESULT, message=message, timing=None) if message else verdict

    def retime(self, programs: Sequence[tuple[Artifact, LaunchPlan]], rounds: int) -> tuple[Timing | Wrong | None, ...]:
        """Time several verified candidates in turn, `rounds` times each, so that drift hits all alike.

        Of each candidate's rounds the one with the median median is returned; None where a launch failed. Candidates
        that the device may have compared by itself are compared by the host as well, so that none wins on its word;
        what that finds is told, and no time.
        """
        timings: list[list[Timing]] = [[] for _ in programs]
        wrong: dict[int, Wrong] = {}
        for number in range(rounds):
            for place, (artifact, plan) in enumerate(programs):
                timing = None if place in wrong else self._time_once(artifact, plan, compare=number == 0)
                if isinstance(timing, Wrong):
                    wrong[place] = timing
                elif timing is not None:
                    timings[place].append(timing)
        return tuple(
            wrong.get(place) or (_middle(collected) if len(collected) == rounds else None)
            for place, collected in enumerate(timings)
        )

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

    def _time_once(self, artifact: Artifact, plan: LaunchPlan, *, compare: bool) -> Timing | Wrong | None:
        side = self._side(plan)
        try:
            self._place(side)
            with closing(self._device.load(artifact, plan)) as program:
                if compare and isinstance(self._device, Comparing):
                    self._run_poisoned(program, plan)
                    _, message = self._host.compare(side, self._outputs(side))
                    if message:
                        self._doubt_all()
                        return Wrong(f"compared by the host: {message}")
                return self._device.time(program, plan, TimingBudget(max_seconds=_FINAL_SECONDS))
        except LaunchError:
            return None

    def _side(self, plan: LaunchPlan) -> Side:
        return own_side(self._op, plan, self._expected)

    def _repeats(self, program: Program, side: Side, known: Known) -> bool:
        """Whether another run gives the same bits as the first."""
        self._spoil(side, known)
        self._device.run(program, side.plan)
        return not known.differing()

    def _judge(self, program: Program, sides: tuple[Side, ...], budget: TimingBudget | None) -> tuple[Verdict, Known]:
        """The verdict and the outputs of the first run."""
        own = sides[0]
        took = self._run_poisoned(program, own.plan)
        if took is not None and budget is not None and _hopeless(took, budget):
            self._trusted = False
            said = f"given up after its first run, unverified: {format_ms(took)} ms"
            return Verdict(Outcome.PRUNED, said, _one_run(took)), Downloaded(self._device, {})
        ahead = took is not None  # a GPU, whose runs take less than comparisons
        verification, message, known = self._verify(program, sides, ahead=ahead)
        if message and not self._trusted:  # an unverified candidate may have written to the inputs: once more
            self._doubt_all()
            self._place(*sides)
            self._run_poisoned(program, own.plan)
            verification, message, known = self._verify(program, sides, ahead=ahead)
        self._trusted = True
        if message:
            return Verdict(Outcome.WRONG_RESULT, message, None, verification), known
        if budget is None:
            return Verdict(Outcome.OK, "", None, verification), known
        timing = self._device.time(program, own.plan, budget)
        again, message = self._compare_again(own, known)
        if message:
            message = f"after it was timed: {message}"
            return Verdict(Outcome.WRONG_RESULT, message, None, updated(verification, again)), known
        outcome, message = judge_timing(timing, budget)
        kept = None if outcome is Outcome.LAUNCH_ERROR else timing
        return Verdict(outcome, message, kept, verification), known

    def _run_poisoned(self, program: Program, plan: LaunchPlan) -> float | None:
        """Run over outputs and workspaces of NaN; milliseconds where the device can tell."""
        for buffer in plan.buffers:
            if buffer.role != "input":
                self._device.poison(buffer.name)
        return self._device.run(program, plan)

    def _verify(self, program: Program, sides: tuple[Side, ...], *, ahead: bool) -> tuple[Verification, str, Known]:
        """Compare every element, run again, compare again; the text says what is wrong, empty when all is right.

        Outputs and workspaces were NaN before the first run. Before the second one both hold finite values that are
        far from right: kernels that add to what is there, blend it in, or write only what has not been written yet
        are caught, and those that compute again what NaN in a workspace has made NaN. The second run has other
        inputs, where the op knows some that show more, and every tensor that allows it has other strides. The outputs
        returned are those of the first run.

        Where the device compares by itself, the host does for what that one doubts. `ahead`: the device runs in no
        time, so that it goes on while the host compares the results before; it is not timed meanwhile.
        """
        own, *others = sides
        with ThreadPoolExecutor(1, thread_name_prefix="comparison") as beside:
            comparison, outputs = self._begin_comparison(own, beside)
            known = self._known(own, outputs)
            compared = [(own, comparison)]
            for other in others:
                if not ahead and compared[-1][1].result()[1]:
                    break
                self._run_again(program, other)
                compared.append((other, self._begin_comparison(other, beside)[0]))
            changed = self._changed_inputs(sides) if others else ""
            verification, message = joined([(side.label, future.result()) for side, future in compared])
        if not others:
            if not message:
                self._spoil(own, known)
                self._leave_over(own.plan)
                self._device.run(program, own.plan)
                repeated, message = self._compare_again(own, known)
                message = message and f"run again over other values: {message}"
                verification = updated(verification, repeated)
            changed = self._changed_inputs(sides)
        return verification, changed or message, known

    def _begin_comparison(
        self, side: Side, beside: ThreadPoolExecutor
    ) -> tuple["Future[tuple[Verification, str]]", Storages | None]:
        """Of what the device holds now: right there, else of what is downloaded for it."""
        found = self._compare_here(side)
        if found is not None:
            return beside.submit(lambda: (found, "")), None
        outputs = self._outputs(side)
        return beside.submit(self._host.compare, side, outputs), outputs

    def _compare_here(self, side: Side, names: Sequence[str] | None = None) -> Verification | None:
        """What the device finds by itself, where all is right."""
        return None if self._here is None else self._here.compare(side, names)

    def _run_again(self, program: Program, side: Side) -> None:
        """Run over a side whose outputs hold wrong values, and workspaces what others may have left."""
        for buffer in side.buffers("output"):
            self._device.poison(buffer.name, WRONG)
        self._leave_over(side.plan)
        self._device.run(program, side.plan)

    def _outputs(self, side: Side) -> Storages:
        return {buffer.name: self._device.download(buffer.name) for buffer in side.buffers("output")}

    def _known(self, side: Side, outputs: Storages | None) -> Known:
        """The outputs as they are now, to tell later ones by."""
        if outputs is None and self._here is not None:
            return Kept(self._here, side.buffers("output"))
        return Downloaded(self._device, outputs or {})

    def _spoil(self, side: Side, known: Known) -> None:
        """Wrong values in every element of the outputs; what lies between their tensors stays as it is `known`."""
        for buffer in side.buffers("output"):
            inside = self._host.inside(side, buffer)
            if inside is None:
                self._device.poison(buffer.name, WRONG)
                continue
            image = known.image(buffer.name).copy()
            image[inside] = np.frombuffer(bytes([WRONG]) * image.itemsize, image.dtype)[0]
            self._device.upload(buffer.name, image)

    def _leave_over(self, plan: LaunchPlan) -> None:
        for buffer in plan.buffers:
            if buffer.role == "workspace":
                self._device.poison(buffer.name, _LEFT_OVER)

    def _compare_again(self, side: Side, known: Known) -> tuple[Verification | None, str]:
        """Compare the outputs that are there now, but for those that equal the `known` good ones bit for bit."""
        others = known.differing()
        if not others:
            return None, ""
        found = self._compare_here(side, others)
        if found is not None:
            return found, ""
        return self._host.compare(side, {name: self._device.download(name) for name in others})

    def _place(self, *sides: Side) -> None:
        """Make the sides' buffers exist, and their inputs be there."""
        self._allocate([*sides[0].plan.buffers, *(buffer for side in sides[1:] for buffer in side.own)], sides)
        inputs = {buffer.name: (buffer, side) for side in sides for buffer in side.buffers("input")}
        self._uploaded = {
            name: held
            for name, held in self._uploaded.items()
            if name in inputs and inputs[name][0] == held and (self._here is None or self._here.has_copy(held))
        }
        missing = [(buffer, side) for name, (buffer, side) in inputs.items() if name not in self._uploaded]
        for buffer, side in missing:
            self._device.upload(buffer.name, self._images.of(side, buffer))
            self._uploaded[buffer.name] = buffer
        if self._here is not None:
            self._here.copy([buffer for buffer, _ in missing])

    def _allocate(self, buffers: Sequence[Buffer], sides: Sequence[Side]) -> None:
        """With what the device compares with, while its memory suffices for both; else that is given up."""
        if self._here is None:
            self._device.allocate(buffers)
            return
        beside = self._here.buffers(sides)
        with suppress(LaunchError):
            if beside is not None:
                self._device.allocate([*buffers, *beside])
                self._here.placed(beside)
                return
        self._here.placed(())
        self._device.allocate(buffers)  # which may be too large by themselves
        self._here, self._making = None, Making(None)

    def _doubt_all(self) -> None:
        """Upload everything again before the next run."""
        self._uploaded.clear()
        if self._here is not None:
            self._here.forget()

    def _changed_inputs(self, sides: Sequence[Side]) -> str:
        """What the kernel did to its inputs; all those it changed are uploaded again for the next candidate."""
        inputs = [(side, buffer) for side in sides for buffer in side.buffers("input")]
        if self._here is not None:
            seeming = self._here.changed([buffer for _, buffer in inputs])
            for name in seeming:  # it may be the copy
                del self._uploaded[name]
            inputs = [(side, buffer) for side, buffer in inputs if buffer.name in seeming]
        changed = [b.name for side, b in inputs if not self._device.equals(b.name, self._images.of(side, b))]
        for name in changed:
            self._uploaded.pop(name, None)
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
