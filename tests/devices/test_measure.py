"""Verification: what is right passes, what is wrong in any way does not. Timing: what cannot be a time is none."""

import math
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

from autotune.core.measurement import Timing
from autotune.core.outcome import Outcome
from autotune.core.plan import LaunchPlan, TensorSpec
from autotune.core.problem import Problem
from autotune.devices.comparison import compare
from autotune.devices.measure import Bench, Verdict
from autotune.devices.protocol import TimingBudget
from autotune.ops.expected import covered, effort, expect, load, save, tensor_view, unit_sources
from autotune.ops.op import Arrays
from autotune.ops.registry import get_op
from tests.device_doubles import OP, PROBLEM, LowerHalf, N, PythonDevice, PythonProgram, artifact, plan

WRONG = {
    "half_written": "y: 54 elements NaN or Inf, or not written; first at (0, 3, 0)",
    "last_unwritten": "y: 1 elements NaN or Inf, or not written; first at (2, 5, 5)",
    "one_nan": "y: 1 elements NaN or Inf, or not written; first at (1, 3, 2)",
    "one_infinite": "y: 1 elements NaN or Inf, or not written; first at (1, 3, 2)",
    "wrong_sign": "y: error",
    "no_scale": "y: error",
    "one_unmasked": "at (2, 0, 1), bound",
    "accumulating": "run again over other values: y: error",
    "blending": "run again over other values: y: error",
    "once": "run again over other values: y: error",
    "twice": "run again over other values: y: error",
    "changes_input": "input x was changed",
    "writes_outside": "y: written outside the tensors it holds",
    "reads_outside": "y: 1 elements NaN or Inf, or not written; first at (0, 0, 0)",
    "workspace_is_zero": "NaN or Inf",
}


def bench(device: PythonDevice | None = None) -> Bench:
    return Bench(device or PythonDevice(PROBLEM), OP, expect(OP, PROBLEM, seed=7))  # type: ignore[arg-type]


def judge(kernel: str, *, on: Bench | None = None, budget: TimingBudget | None = None) -> Verdict:
    return (on or bench()).evaluate(artifact(kernel), plan(), budget)


def test_a_right_kernel_is_ok() -> None:
    verdict = judge("right")
    assert verdict.outcome is Outcome.OK
    assert verdict.message == ""
    assert verdict.verification is not None
    assert verdict.verification.passed
    assert (verdict.verification.units_checked, verdict.verification.units_total) == (3, 3)
    assert verdict.verification.problem == "lower_half B=3 dtype=fp32"
    assert verdict.timing is None


@pytest.mark.parametrize("kernel", WRONG)
def test_wrong_kernels_are_rejected(kernel: str) -> None:
    verdict = judge(kernel, budget=TimingBudget())
    assert verdict.outcome is Outcome.WRONG_RESULT
    assert WRONG[kernel] in verdict.message
    assert verdict.timing is None


def test_a_wrong_kernel_does_not_spoil_the_next_one() -> None:
    one = bench()
    for kernel in (*WRONG, "right"):
        verdict = judge(kernel, on=one)
    assert verdict.outcome is Outcome.OK


def test_inputs_stay_on_the_device_until_someone_changes_them() -> None:
    device = PythonDevice(PROBLEM)
    one = bench(device)
    for kernel in ("right", "wrong_sign", "right"):
        judge(kernel, on=one)
    assert device.uploads == 1
    judge("changes_input", on=one)
    judge("right", on=one)
    assert device.uploads == 2


def test_a_refused_launch() -> None:
    verdict = judge("refuses")
    assert verdict.outcome is Outcome.LAUNCH_ERROR
    assert "300000" in verdict.message
    assert "232448" in verdict.message


@pytest.mark.parametrize("ms", [math.nan, 0.0, -1.0, math.inf])
def test_what_cannot_be_a_time(ms: float) -> None:
    verdict = judge("right", on=bench(PythonDevice(PROBLEM, times_ms={"right": ms})), budget=TimingBudget())
    assert verdict.outcome is Outcome.LAUNCH_ERROR
    assert verdict.timing is None


@pytest.mark.parametrize(("limit", "outcome"), [(None, Outcome.OK), (2.0, Outcome.OK), (0.5, Outcome.PRUNED)])
def test_giving_up_on_what_is_slower(limit: float | None, outcome: Outcome) -> None:
    verdict = judge("right", budget=TimingBudget(give_up_above_ms=limit))
    assert verdict.outcome is outcome
    assert verdict.timing is not None
    assert verdict.timing.median_ms == 1.0


def test_finalists_are_timed_in_turn() -> None:
    one = bench(PythonDevice(PROBLEM, times_ms={"right": 2.0, "no_scale": 1.0}))
    timings = one.retime([(artifact(kernel), plan()) for kernel in ("right", "no_scale", "refuses")], rounds=3)
    assert [timing.median_ms if isinstance(timing, Timing) else timing for timing in timings] == [2.0, 1.0, None]


def test_nothing_is_compared_with_nan() -> None:
    reference = np.array([1.0, -np.inf, 2.0])
    passing = compare("y", np.array([1.0, -np.inf, 2.0]), reference, 0.1)
    assert passing.passed
    for got in (
        [np.nan, -np.inf, 2.0],
        [1.0, np.inf, 2.0],
        [1.0, np.nan, 2.0],
        [1.0, -1e30, 2.0],
        [1.0, -np.inf, np.inf],
    ):
        check = compare("y", np.array(got), reference, 1e9)
        assert not check.passed
        assert check.not_finite == 1
    assert not compare("y", np.array([1.0]), np.array([1.0]), math.nan).passed


def test_the_bound_follows_the_low_precision_reference() -> None:
    half = PROBLEM.replace(dtype="fp16")
    for problem, scale in ((PROBLEM, 2.0**-24), (half, 2.0**-11)):
        unit = expect(OP, problem, seed=7).units[0]
        largest = np.abs(unit.reference["y"]).max()
        assert 0 < unit.bound["y"] < 80 * scale * largest


def test_the_bound_allows_a_rounding_of_the_largest_element_even_where_the_reference_was_lucky() -> None:
    class Lucky(LowerHalf):
        def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
            return self.reference(problem, inputs)

    unit = expect(Lucky(), PROBLEM.replace(dtype="fp16"), seed=7).units[0]
    largest = np.abs(unit.reference["y"]).max()
    assert unit.bound["y"] == pytest.approx((2 * 2.0**-11 + 32 * 2.0**-23) * largest)


def test_a_unit_of_zeros_must_be_exact() -> None:
    class Nothing(LowerHalf):
        def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
            return {"y": np.zeros(inputs["x"].shape)}

        low_precision = reference

    assert expect(Nothing(), PROBLEM, seed=1).units[0].bound["y"] == 0.0


def test_storage_between_and_around_tensors_is_nan() -> None:
    image = expect(OP, PROBLEM, seed=7).images["x"]
    x = OP.tensors(PROBLEM)[0]
    inside = covered(image.size, (x,))
    assert np.isnan(image[~inside]).all()
    assert np.array_equal(tensor_view(image, x), OP.inputs(PROBLEM, 7)["x"])
    assert inside.sum() == 3 * N * N


def test_views_honour_strides_and_offsets() -> None:
    tensor = TensorSpec("t", (2, 3), (1, 2), "fp32", "input", "s", 1)
    assert tensor_view(np.arange(7.0), tensor).tolist() == [[1, 3, 5], [2, 4, 6]]


def test_units_of_long_problems_share_their_values() -> None:
    assert unit_sources(5, 1e9, 0, 1e9) == (0, 1, 2, 3, 4)
    some = unit_sources(100, 1e12, 0, 1e11)
    assert sorted(some) == sorted(list(range(10)) * 10)
    assert some == unit_sources(100, 1e12, 0, 1e11)
    assert some != unit_sources(100, 1e12, 1, 1e11)
    assert some != tuple(range(10)) * 10  # a wrong stride that is a multiple of ten meets other values
    assert sorted(set(unit_sources(100, 1e15, 0, 1e9))) == [0, 1]
    assert unit_sources(2, 1e15, 0, 1.0) in ((0, 1), (1, 0))


def test_units_of_large_inputs_share_their_values() -> None:
    """A step of decoding has few flops: its 4 million elements an entry are what takes long to make."""
    forward = get_op("forward")
    decode = forward.problem(B=16, NH=32, NH_kv=8, T=1, T_kv=4096, HS=128, dtype="bf16", causal=False)
    assert forward.flops(decode) == 2**30
    assert effort(forward, decode) == 600 * (2 * 16 * 8 * 4096 * 128 + 16 * 32 * 128)
    assert effort(forward, forward.problem()) == forward.flops(forward.problem())


def test_every_unit_of_a_long_problem_is_compared() -> None:
    problem = PROBLEM.replace(B=8)
    expectation = expect(OP, problem, seed=7, flop_budget=effort(OP, problem) / 2)
    assert len(expectation.units) == 4
    x = tensor_view(expectation.images["x"], OP.tensors(problem)[0])
    assert len({x[i].tobytes() for i in range(8)}) == 4
    for i, source in enumerate(expectation.sources):
        assert np.array_equal(expectation.units[source].reference["y"][0], np.tril(x[i].astype(np.float64) / 2))
    bench = Bench(PythonDevice(problem), OP, expectation)  # type: ignore[arg-type]
    verdict = bench.evaluate(artifact("right"), plan(problem), None)
    assert verdict.verification is not None
    assert (verdict.outcome, verdict.verification.units_checked) == (Outcome.OK, 8)
    assert bench.evaluate(artifact("last_unwritten"), plan(problem), None).outcome is Outcome.WRONG_RESULT


class Told(PythonDevice):
    """Tells what a run took: a time for each kernel."""

    def run(self, program: PythonProgram, plan: LaunchPlan) -> float | None:
        super().run(program, plan)
        return self.times_ms.get(program.kernel.__name__)


def test_a_first_run_that_is_far_too_slow_ends_it() -> None:
    one = bench(Told(PROBLEM, times_ms={"right": 1.0, "wrong_sign": 9.0, "no_scale": 1.3}))
    budget = TimingBudget(give_up_above_ms=1.5)
    verdict = judge("wrong_sign", on=one, budget=budget)
    assert (verdict.outcome, verdict.verification) == (Outcome.PRUNED, None)
    assert "unverified: 9 ms" in verdict.message
    assert verdict.timing is not None
    assert (verdict.timing.median_ms, verdict.timing.repeats) == (9.0, 1)
    assert judge("no_scale", on=one, budget=budget).outcome is Outcome.WRONG_RESULT
    assert judge("wrong_sign", on=one, budget=TimingBudget()).outcome is Outcome.WRONG_RESULT
    assert judge("right", on=one, budget=budget).outcome is Outcome.OK


def test_inputs_that_an_unverified_candidate_changed_are_not_held_against_the_next() -> None:
    device = Told(PROBLEM, times_ms={"right": 1.0, "changes_input": 9.0})
    one = bench(device)
    budget = TimingBudget(give_up_above_ms=1.5)
    assert judge("changes_input", on=one, budget=budget).outcome is Outcome.PRUNED
    assert judge("right", on=one, budget=budget).outcome is Outcome.OK
    assert device.uploads == 2


def test_expectations_survive_a_restart_and_half_a_file_does_not_count() -> None:
    file = BytesIO()
    assert load(file) is None
    expectation = expect(OP, PROBLEM, seed=7)
    save((expectation,), file)
    kept = load(file)
    assert kept is not None
    [again] = kept
    assert again.problem == PROBLEM
    assert np.array_equal(again.units[1].reference["y"], expectation.units[1].reference["y"])
    file.truncate(len(file.getvalue()) // 2)
    assert load(file) is None


def test_bf16_survives_a_restart() -> None:
    import ml_dtypes

    expectation = expect(OP, PROBLEM, seed=7)
    image = np.arange(4).astype(ml_dtypes.bfloat16)
    file = BytesIO()
    save((replace(expectation, images={"x": image}),), file)
    kept = load(file)
    assert kept is not None
    [again] = kept
    assert again.images["x"].dtype == image.dtype
    assert again.images["x"].tobytes() == image.tobytes()
