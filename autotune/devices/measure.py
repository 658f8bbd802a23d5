"""Verify, then time: what happens to one built candidate on a device. Runs inside the worker process."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.core.errors import LaunchError
from autotune.core.measurement import OutputCheck, Timing, Verification
from autotune.core.outcome import Outcome
from autotune.core.plan import Buffer, LaunchPlan
from autotune.core.words import format_ms
from autotune.devices.protocol import Device, Program, TimingBudget
from autotune.ops.expected import Expectation, covered, tensor_view
from autotune.ops.op import Op

Storages = Mapping[str, NDArray[Any]]
"""Downloaded buffers by name, 1-D."""

_WRONG = 0x55  # as every byte: 85.3 in fp16, 1.5e13 in bf16 and fp32

_FINAL_SECONDS = 0.2  # a finalist's rounds are several
_COLD_FACTOR, _COLD_MS = 1.25, 0.1  # how much slower a first run may be than the limit for warm ones


@dataclass(frozen=True)
class Verdict:
    """How one candidate fared: the part of a `Measurement` that the device decides."""

    outcome: Outcome
    message: str = ""
    timing: Timing | None = None
    verification: Verification | None = None


class Bench:
    """A device with one problem's inputs on it; evaluates candidates one after the other.

    Inputs stay on the device between candidates and are checked to be unchanged after each that is verified: all but
    those whose first run is so slow that they cannot win.
    """

    def __init__(self, device: Device, op: Op, expectation: Expectation) -> None:
        self._device = device
        self._op = op
        self._expected = expectation
        self._uploaded: dict[str, Buffer] = {}
        self._trusted = True  # the inputs on the device have been compared since the last run
        self._covered: dict[str, NDArray[np.bool_] | None] = {}

    def evaluate(self, artifact: Artifact, plan: LaunchPlan, budget: TimingBudget | None) -> Verdict:
        """Load, verify, and time if a budget is given. A refused or failing launch becomes the verdict's outcome."""
        try:
            self._place(plan)
            with closing(self._device.load(artifact, plan)) as program:
                return self._judge(program, plan, budget)
        except LaunchError as error:
            self._uploaded.clear()  # who knows what it wrote before it failed
            return Verdict(Outcome.LAUNCH_ERROR, str(error))

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

    def _time_once(self, artifact: Artifact, plan: LaunchPlan) -> Timing | None:
        try:
            self._place(plan)
            with closing(self._device.load(artifact, plan)) as program:
                return self._device.time(program, plan, TimingBudget(max_seconds=_FINAL_SECONDS))
        except LaunchError:
            return None

    def _judge(self, program: Program, plan: LaunchPlan, budget: TimingBudget | None) -> Verdict:
        took = self._run_poisoned(program, plan)
        if took is not None and budget is not None and _hopeless(took, budget):
            self._trusted = False
            return Verdict(
                Outcome.PRUNED, f"given up after its first run, unverified: {format_ms(took)} ms", _one_run(took)
            )
        verification, message, outputs = self._verify(program, plan)
        if message and not self._trusted:  # an unverified candidate may have written to the inputs: once more
            self._uploaded.clear()
            self._place(plan)
            self._run_poisoned(program, plan)
            verification, message, outputs = self._verify(program, plan)
        self._trusted = True
        if message:
            return Verdict(Outcome.WRONG_RESULT, message, None, verification)
        if budget is None:
            return Verdict(Outcome.OK, "", None, verification)
        timing = self._device.time(program, plan, budget)
        again, message = self._compare_again(plan, outputs)
        if message:
            return Verdict(Outcome.WRONG_RESULT, f"after it was timed: {message}", None, again or verification)
        outcome, message = judge_timing(timing, budget)
        return Verdict(outcome, message, None if outcome is Outcome.LAUNCH_ERROR else timing, verification)

    def _run_poisoned(self, program: Program, plan: LaunchPlan) -> float | None:
        """Run over outputs and workspaces of NaN; milliseconds where the device can tell."""
        for buffer in plan.buffers:
            if buffer.role != "input":
                self._device.poison(buffer.name)
        return self._device.run(program, plan)

    def _verify(self, program: Program, plan: LaunchPlan) -> tuple[Verification, str, Storages]:
        """Compare every element, run again, compare again; the text says what is wrong, empty when all is right.

        Outputs and workspaces were NaN before the first run. Before the second one outputs hold finite values that
        are far from right, and workspaces what the first run left: kernels that add to what is there, blend it in,
        or write only what has not been written yet are caught. The outputs returned are those of the first run.
        """
        outputs = self._outputs(plan)
        verification, message = self._compare(plan, outputs)
        if not message:
            self._spoil(plan, outputs)
            self._device.run(program, plan)
            again, message = self._compare_again(plan, outputs)
            message = message and f"run again over other values: {message}"
            verification = again or verification
        return verification, self._changed_input(plan) or message, outputs

    def _outputs(self, plan: LaunchPlan) -> Storages:
        return {b.name: self._device.download(b.name) for b in plan.buffers if b.role == "output"}

    def _spoil(self, plan: LaunchPlan, known: Storages) -> None:
        """Wrong values in every element of the outputs; what lies between their tensors stays as it is `known`."""
        for buffer in plan.buffers:
            if buffer.role == "output":
                inside = self._inside(buffer)
                if inside is None:
                    self._device.poison(buffer.name, _WRONG)
                    continue
                image = known[buffer.name].copy()
                image[inside] = np.frombuffer(bytes([_WRONG]) * image.itemsize, image.dtype)[0]
                self._device.upload(buffer.name, image)

    def _compare_again(self, plan: LaunchPlan, known: Storages) -> tuple[Verification | None, str]:
        """Compare the outputs that are there now, unless they equal the `known` good ones bit for bit."""
        if all(self._device.equals(name, known[name]) for name in known):
            return None, ""
        return self._compare(plan, self._outputs(plan))

    def _place(self, plan: LaunchPlan) -> None:
        self._device.allocate(plan.buffers)
        inputs = {buffer.name: buffer for buffer in plan.buffers if buffer.role == "input"}
        self._uploaded = {name: held for name, held in self._uploaded.items() if inputs.get(name) == held}
        for name, buffer in inputs.items():
            if name not in self._uploaded:
                self._device.upload(name, self._image(buffer))
                self._uploaded[name] = buffer

    def _image(self, buffer: Buffer) -> NDArray[Any]:
        image = self._expected.images[buffer.name]
        missing = buffer.elements - image.size
        if missing <= 0:
            return image
        padding = np.frombuffer(b"\xff" * (missing * image.itemsize), image.dtype)
        return np.concatenate([image, padding])

    def _compare(self, plan: LaunchPlan, storages: Storages) -> tuple[Verification, str]:
        expected = self._expected
        got = {tensor.name: tensor_view(storages[tensor.storage], tensor) for tensor in expected.outputs}
        with ThreadPoolExecutor(max_workers=max(1, min(8, (os.cpu_count() or 1) // 2))) as pool:
            units = range(len(expected.sources))
            per_unit = list(pool.map(lambda index: self._check_unit(index, got, plan.arithmetic), units))
        checks = tuple(_worst([unit[name] for unit in per_unit]) for name in got)
        verification = Verification(expected.problem.key, checks, len(per_unit), len(expected.sources))
        return verification, "; ".join(filter(None, map(describe, checks))) or self._stray_write(plan, storages)

    def _check_unit(self, index: int, got: dict[str, NDArray[Any]], arithmetic: str) -> dict[str, OutputCheck]:
        unit = self._expected.units[self._expected.sources[index]]
        bound = unit.bounds[arithmetic]
        piece = self._op.unit(self._expected.problem, got, index)
        return {
            name: _located(compare(name, piece[name], reference, bound[name]), got[name], piece[name])
            for name, reference in unit.reference.items()
        }

    def _stray_write(self, plan: LaunchPlan, storages: Storages) -> str:
        for buffer in plan.buffers:
            inside = self._inside(buffer) if buffer.role == "output" else None
            if inside is not None:
                outside = storages[buffer.name][~inside]
                if outside.tobytes() != b"\xff" * outside.nbytes:
                    return f"{buffer.name}: written outside the tensors it holds"
        return ""

    def _inside(self, buffer: Buffer) -> NDArray[np.bool_] | None:
        """Which elements of an output's storage belong to a tensor; None for all of them."""
        if buffer.name not in self._covered:
            members = tuple(tensor for tensor in self._expected.outputs if tensor.storage == buffer.name)
            mask = covered(buffer.elements, members)
            self._covered[buffer.name] = None if mask.all() else mask
        return self._covered[buffer.name]

    def _changed_input(self, plan: LaunchPlan) -> str:
        """What the kernel did to its inputs; those are uploaded again for the next candidate."""
        for buffer in plan.buffers:
            if buffer.role == "input" and not self._device.equals(buffer.name, self._image(buffer)):
                del self._uploaded[buffer.name]
                return f"input {buffer.name} was changed"
        return ""


def compare(name: str, got: NDArray[Any], reference: NDArray[np.float64], bound: float) -> OutputCheck:
    """Every element of one output of one unit against the reference.

    NaN and Inf count as `not_finite`, except where the reference has the same, or is beyond what the element type holds
    and the result is that infinity.
    """
    if got.size == 0:
        return OutputCheck(name, 0.0, bound, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.subtract(got, reference, dtype=np.float64, casting="unsafe")
    np.abs(error, out=error)
    bad = 0
    if not np.isfinite(error.max()):  # NaN counts as the largest
        with np.errstate(over="ignore"):
            held = reference.astype(got.dtype).astype(np.float64)
        wrong = _not_finite(got.astype(np.float64), np.where(np.isfinite(held), reference, held))
        error[~np.isfinite(error)] = 0.0
        bad = int(wrong.sum())
    worst = int(wrong.argmax()) if bad else int(error.argmax())
    at = tuple(int(axis) for axis in np.unravel_index(worst, got.shape))
    return OutputCheck(name, float(error.max()), bound, bad, at)


def _not_finite(value: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.bool_]:
    same = (value == reference) | (np.isnan(value) & np.isnan(reference))
    return np.where(np.isfinite(reference), ~np.isfinite(value), ~same)


def describe(check: OutputCheck) -> str:
    """What is wrong with an output, or an empty text."""
    if check.passed:
        return ""
    if check.not_finite:
        return f"{check.name}: {check.not_finite} elements NaN or Inf, or not written; first at {check.at}"
    return f"{check.name}: error {check.max_abs_error:.3g} at {check.at}, bound {check.bound:.3g}"


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


def _worst(checks: Sequence[OutputCheck]) -> OutputCheck:
    bad = sum(check.not_finite for check in checks)
    # An error counts by how far it exceeds its own unit's bound; a bound of 0 allows no error at all.
    worst = max(checks, key=lambda check: (check.not_finite, _excess(check)))
    return replace(worst, not_finite=bad)


def _excess(check: OutputCheck) -> float:
    if check.bound > 0.0:
        return check.max_abs_error / check.bound
    return float("inf") if check.max_abs_error > 0.0 else 0.0


def _located(check: OutputCheck, whole: NDArray[Any], piece: NDArray[Any]) -> OutputCheck:
    """The check with `at` counted in the whole output rather than in the unit, when the unit is a view of it."""
    if check.at is None:
        return check
    offset = (
        piece.__array_interface__["data"][0]
        - whole.__array_interface__["data"][0]
        + sum(index * stride for index, stride in zip(check.at, piece.strides, strict=True))
    )
    at = _unravel(offset, whole)
    return check if at is None else replace(check, at=at)


def _unravel(offset: int, whole: NDArray[Any]) -> tuple[int, ...] | None:
    index = [0] * whole.ndim
    for axis in sorted(range(whole.ndim), key=lambda axis: -whole.strides[axis]):
        if whole.strides[axis] > 0 and whole.shape[axis] > 1:
            index[axis], offset = divmod(offset, whole.strides[axis])
    inside = offset == 0 and all(0 <= i < n for i, n in zip(index, whole.shape, strict=True))
    return tuple(index) if inside else None


def _middle(timings: Sequence[Timing]) -> Timing | None:
    ordered = sorted(timings, key=lambda timing: timing.median_ms)
    return ordered[len(ordered) // 2] if ordered else None
