"""Comparisons: what each finds, in what pieces it looks, and what a device does meanwhile."""

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.core.measurement import Timing, Verification
from autotune.core.outcome import Outcome
from autotune.core.plan import Buffer, LaunchPlan
from autotune.devices import comparison, host_comparison
from autotune.devices.comparison import compare, compare_all
from autotune.devices.measure import Bench
from autotune.devices.protocol import TimingBudget
from autotune.ops.expected import Expectation, expect, tensor_view
from autotune.ops.op import Op
from autotune.ops.registry import get_op
from tests.device_doubles import OP, PROBLEM, PythonDevice, PythonProgram, artifact, plan


@pytest.mark.parametrize("seed", range(200))
def test_the_worst_element_is_the_one_that_exceeds_its_own_bound_by_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (1, int(rng.integers(1, 3)), int(rng.integers(1, 7)), int(rng.integers(1, 7)))
    reference = rng.normal(size=shape) * (rng.random(shape) < 0.9)
    for strange in (np.nan, np.inf, 1e6):  # the last is infinite in fp16
        if rng.random() < 0.3:
            reference[rng.random(shape) < 0.2] = strange
    with np.errstate(over="ignore", invalid="ignore"):
        got = (reference + 1e-3 * rng.normal(size=shape) * (rng.random(shape) < 0.5)).astype(np.float16)
    if rng.random() < 0.2:
        got[rng.random(shape) < 0.1] = np.nan
    bounds = np.abs(rng.normal(size=(*shape[:-1], 1))) * 1e-3 * (rng.random((*shape[:-1], 1)) < 0.8)
    check = compare("y", got, reference, bounds)

    with np.errstate(over="ignore"):
        rounded = reference.astype(np.float16)
    bad, parts = 0, []
    for at in np.ndindex(shape):
        expected = float(rounded[at]) if math.isinf(rounded[at]) else float(reference[at])
        value, bound = float(got[at]), float(np.broadcast_to(bounds, shape)[at])
        same = value == expected or (math.isnan(value) and math.isnan(expected))
        if not same and not (math.isfinite(value) and math.isfinite(expected)):
            bad += 1
        error = 0.0 if same or not math.isfinite(value - expected) else abs(value - float(reference[at]))
        parts.append(0.0 if error == 0.0 else math.inf if bound == 0.0 else error / bound)
    assert check.not_finite == bad
    if not bad:
        assert check.part_of_bound == max(parts)
        assert check.passed == (max(parts) <= 1.0)


@pytest.mark.parametrize("at", [(0, 0, 0), (0, 1, 0), (1, 3, 2), (2, 5, 1), (2, 5, 5)])
def test_in_whatever_pieces_it_looks_a_wrong_element_is_found_where_it_is(
    at: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = expect(OP, PROBLEM, seed=7)
    tensor = OP.tensors(PROBLEM)[1]
    storage = np.full(tensor.extent, np.nan, np.float32)
    got = tensor_view(storage, tensor)
    for index, source in enumerate(expected.sources):
        got[index] = expected.units[source].reference["y"][0]
    for block in (1, 7, 12, 13, 36, 1000):  # of 36 elements a unit, 6 a row
        monkeypatch.setattr(comparison, "_BLOCK", block)
        verification, message = compare_all(OP, expected, {"y": got}, "full")
        assert (message, verification.units_checked) == ("", 3)
        kept, got[at] = got[at].copy(), 9.0
        _, message = compare_all(OP, expected, {"y": got}, "full")
        got[at] = kept
        assert f"y: error 9 at {at}" in message or f"at {at}, bound" in message


class Following(PythonDevice):
    """Runs over whichever buffers a plan names, and says what happens."""

    def __init__(self, took: float | None) -> None:
        super().__init__(PROBLEM)
        self.took, self.said, self.runs = took, list[str](), 0
        self.run_again, self.compared = threading.Event(), 0

    def run(self, program: PythonProgram, plan: LaunchPlan) -> float | None:
        self.runs += 1
        self.said.append(f"run {self.runs}")
        if self.runs > 1:
            self.run_again.set()
        named: dict[str, NDArray[Any]] = {buffer.role: self._buffers[buffer.name][1] for buffer in plan.buffers}
        x, y = OP.tensors(self.problem)
        views = {"x": tensor_view(named["input"], x), "y": tensor_view(named["output"], y)}
        program.kernel(views, named)
        return self.took

    def time(self, program: PythonProgram, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        self.said.append("timed")
        assert self.compared == 2, "a comparison still ran"
        return Timing("measured", 1.0, 1.0, 1.0, 1.0, 3, "python")


def _judged(
    took: float | None, kernel: str, monkeypatch: pytest.MonkeyPatch, *, wait: bool
) -> tuple[Following, Outcome]:
    device = Following(took)

    def comparing(op: Op, expected: Expectation, got: Mapping[str, NDArray[Any]], arithmetic: str) -> Any:
        if wait:
            assert device.run_again.wait(60), "the device did not go on"
        found = compare_all(op, expected, got, arithmetic)
        device.compared += 1
        device.said.append("compared")
        return found

    monkeypatch.setattr(host_comparison, "compare_all", comparing)
    bench = Bench(device, OP, expect(OP, PROBLEM, seed=7), expect(OP, PROBLEM, seed=8))  # type: ignore[arg-type]
    return device, bench.evaluate(artifact(kernel), plan(), TimingBudget()).outcome


def test_a_gpu_goes_on_while_results_are_compared_and_is_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    device, outcome = _judged(1.0, "right", monkeypatch, wait=True)
    assert outcome is Outcome.OK
    assert device.said == ["run 1", "run 2", "compared", "compared", "timed"]


def test_what_is_wrong_at_once_is_not_run_again_where_runs_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    device, outcome = _judged(None, "right", monkeypatch, wait=False)
    assert (outcome, device.said) == (Outcome.OK, ["run 1", "compared", "run 2", "compared", "timed"])
    device, outcome = _judged(None, "wrong_sign", monkeypatch, wait=False)
    assert (outcome, device.said) == (Outcome.WRONG_RESULT, ["run 1", "compared"])


class AfterTiming(PythonDevice):
    """A forward pass whose log-sum-exps change by `shift` while it is timed."""

    def __init__(self, expected: Expectation, shift: float) -> None:
        super().__init__(expected.problem)
        self.expected, self.shift = expected, shift

    def run(self, program: PythonProgram, plan: LaunchPlan) -> float | None:
        for tensor in self.expected.outputs:
            view = tensor_view(self._buffers[tensor.storage][1], tensor)
            view[...] = self.expected.units[0].reference[tensor.name]
        return 1.0

    def time(self, program: PythonProgram, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        self.run(program, plan)
        self._buffers["lse"][1][3] += self.shift
        return Timing("measured", 1.0, 1.0, 1.0, 1.0, 3, "python")


@pytest.mark.parametrize(("shift", "outcome"), [(1e-6, Outcome.OK), (1.0, Outcome.WRONG_RESULT)])
def test_after_timing_only_outputs_that_differ_are_compared_again(
    shift: float, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = get_op("forward")
    problem = op.problem(B=1, NH=1, NH_kv=1, T=8, T_kv=8, HS=8)
    expected, compared = expect(op, problem, seed=3), list[list[str]]()

    def comparing(op: Op, expected: Expectation, got: Mapping[str, NDArray[Any]], arithmetic: str) -> Any:
        compared.append(sorted(got))
        return compare_all(op, expected, got, arithmetic)

    monkeypatch.setattr(host_comparison, "compare_all", comparing)
    buffers = tuple(Buffer(tensor.storage, tensor.dtype, tensor.extent, tensor.role) for tensor in op.tensors(problem))
    device = AfterTiming(expected, shift)
    verdict = Bench(device, op, expected).evaluate(artifact("right"), LaunchPlan(buffers, ()), TimingBudget())  # type: ignore[arg-type]
    assert compared == [["lse", "out"], ["lse"]]
    assert verdict.outcome is outcome
    assert isinstance(verdict.verification, Verification)
    assert [check.name for check in verdict.verification.checks] == ["out", "lse"]
    if outcome is Outcome.WRONG_RESULT:
        assert "after it was timed: lse: error 1" in verdict.message
        assert [check.passed for check in verdict.verification.checks] == [True, False]
