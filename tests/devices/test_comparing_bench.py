"""A bench whose device compares by itself: the same verdicts in the same words, and little that is downloaded."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.core.measurement import Timing, Wrong
from autotune.core.outcome import Outcome
from autotune.core.plan import LaunchPlan
from autotune.devices import device_comparison
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench, Verdict
from autotune.devices.protocol import Comparing, Device, TimingBudget
from autotune.emulator.building import build_emulator
from autotune.families.source import KernelSource
from autotune.gpus.known import gpu
from autotune.ops.expected import expect
from autotune.ops.registry import get_op
from tests.comparing_doubles import OURS, ComparingCpu, ComparingPython
from tests.device_doubles import OP, PROBLEM, PythonDevice, artifact, plan
from tests.devices.test_measure import WRONG
from tests.devices.test_planted import ATTENTION, GRADIENTS, Planted, backward, expected, forward, plant

BUDGET = TimingBudget()


def bench(device: Any) -> Bench:
    return Bench(device, OP, expect(OP, PROBLEM, seed=7))


def judge(one: Bench, kernel: str, budget: TimingBudget | None = BUDGET, *, deterministic: bool = False) -> Verdict:
    return one.evaluate(artifact(kernel), plan(), budget, deterministic=deterministic)


def test_who_compares_by_itself() -> None:
    assert isinstance(ComparingPython(PROBLEM), Comparing)
    assert not isinstance(PythonDevice(PROBLEM), Comparing)
    assert not isinstance(CpuDevice(gpu("h200"), 1), Comparing)


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_is_right_is_not_downloaded(deterministic: bool) -> None:
    """Nor are inputs, or outputs after they were timed."""
    device = ComparingPython(PROBLEM)
    one = bench(device)
    for _ in range(3):
        verdict = judge(one, "right", deterministic=deterministic)
        assert verdict == judge(bench(PythonDevice(PROBLEM)), "right")
        assert device.host == []
    assert device.uploads == 1


@pytest.mark.parametrize("kernel", [*WRONG, "refuses"])
def test_wrong_kernels_are_rejected_in_the_same_words(kernel: str) -> None:
    there = judge(bench(PythonDevice(PROBLEM)), kernel)
    device = ComparingPython(PROBLEM)
    one = bench(device)
    assert judge(one, "right").outcome is Outcome.OK
    assert judge(one, kernel) == there
    assert judge(one, "right").outcome is Outcome.OK
    assert judge(one, kernel) == there
    assert there.outcome is not Outcome.OK


def test_only_who_changes_inputs_has_them_uploaded_again() -> None:
    device = ComparingPython(PROBLEM)
    one = bench(device)
    for kernel in ("right", "wrong_sign", "right"):
        judge(one, kernel)
    assert device.uploads == 1
    assert judge(one, "changes_input").message == "input x was changed"
    judge(one, "right")
    assert device.uploads == 2


def test_a_write_to_what_is_compared_with_rejects_nobody() -> None:
    """Neither who wrote there, if its results are right, nor the next one."""
    device = ComparingPython(PROBLEM)
    one = bench(device)
    assert judge(one, "right").outcome is Outcome.OK
    for name in [name for name in device._buffers if name.startswith(OURS)]:
        device.host.clear()
        device._buffers[name][1].view(np.uint8)[...] ^= 1
        assert judge(one, "right").outcome is Outcome.OK, name
        device.host.clear()
        assert judge(one, "right").outcome is Outcome.OK, name
        assert device.host == [], name


@pytest.mark.parametrize(("what", "value", "kernel"), [("bounds", 1e300, "no_scale"), ("references", np.nan, "right")])
def test_what_would_let_anything_pass_is_uploaded_again(what: str, value: float, kernel: str) -> None:
    device = ComparingPython(PROBLEM)
    one = bench(device)
    assert judge(one, "right").outcome is Outcome.OK
    (name,) = (name for name in device._buffers if name.startswith(f"{OURS}{what}"))
    device._buffers[name][1][...] = value
    assert judge(one, kernel) == judge(bench(PythonDevice(PROBLEM)), kernel)
    assert np.isfinite(device._buffers[name][1]).all()
    assert (device._buffers[name][1] < 1e3).all()


def test_kernels_that_compare_nothing_are_not_believed() -> None:
    device = ComparingPython(PROBLEM, silent=True)
    one = bench(device)
    assert judge(one, "right").outcome is Outcome.OK
    assert "y" in device.host
    assert judge(one, "half_written").message == judge(bench(PythonDevice(PROBLEM)), "half_written").message


def test_without_memory_for_it_the_host_compares() -> None:
    device = ComparingPython(PROBLEM, full=True)
    one = bench(device)
    assert judge(one, "right").outcome is Outcome.OK
    assert "y" in device.host
    assert not any(name.startswith(OURS) for name in device._buffers)
    assert judge(one, "changes_input").message == "input x was changed"


class SlowToBuild(ComparingPython):
    """Whose kernels are there once they are `allowed`."""

    allowed = threading.Event()

    def build(self, source: KernelSource) -> Artifact:
        assert self.allowed.wait(60)
        return super().build(source)


def test_until_its_kernels_are_built_the_host_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_comparison, "_PATIENCE_S", 0.01)
    device: Any = SlowToBuild(PROBLEM)
    making = device_comparison.Making(device)
    one = Bench(device, OP, expect(OP, PROBLEM, seed=7), making=making)
    assert judge(one, "right").outcome is Outcome.OK
    assert "y" in device.host
    device.allowed.set()
    assert making._begun is not None
    making._begun.result(60)
    device.host.clear()
    assert judge(one, "right").outcome is Outcome.OK
    assert (device.host, device.uploads) == ([], 2)  # the inputs once more, with copies


class AfterTiming(ComparingPython):
    """Whose output changes by `shift` while it is timed."""

    shift = 0.0

    def time(self, program: Any, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        timing = super().time(program, plan, budget)
        self._buffers["y"][1][3] += self.shift
        return timing


@pytest.mark.parametrize(("shift", "host"), [(0.0, False), (1e-9, False), (1.0, True)])
def test_after_timing_outputs_are_compared_again(shift: float, host: bool) -> None:
    device = AfterTiming(PROBLEM)
    device.shift = shift
    verdict = judge(bench(device), "right")
    assert (verdict.outcome is Outcome.WRONG_RESULT) == host
    assert ("y" in device.host) == host
    if host:
        assert verdict.message.startswith("after it was timed: y: error 1 at (0, 0, 3)")


def test_finalists_are_compared_by_the_host_as_well() -> None:
    device = ComparingPython(PROBLEM, times_ms={"right": 2.0, "no_scale": 1.0})
    one = bench(device)
    judge(one, "right")
    programs = [(artifact(kernel), plan()) for kernel in ("right", "no_scale", "refuses")]
    timings = one.retime(programs, rounds=3)
    right, wrong, refused = timings
    assert isinstance(right, Timing)
    assert right.median_ms == 2.0
    assert isinstance(wrong, Wrong)
    assert wrong.message.startswith("compared by the host: y: error ")
    assert refused is None
    assert device.host == ["y", "y"]


def evaluate(device: Device, source: KernelSource, cache: BuildCache, *, deterministic: bool = False) -> Verdict:
    one = Bench(device, get_op(source.problem.op), *expected(source.problem))
    return one.evaluate(build_emulator(source, cache), source.plan, None, deterministic=deterministic)


@pytest.fixture
def comparing() -> Iterator[ComparingCpu]:
    device = ComparingCpu()
    yield device
    device.close()


def _uncounted(message: str) -> str:
    return re.sub(r"\d+ elements", "elements", message)


@pytest.mark.parametrize("mistake", [*ATTENTION, *GRADIENTS])
def test_planted_mistakes_are_found_in_the_same_words(mistake: str, comparing: ComparingCpu, cache: BuildCache) -> None:
    known = ATTENTION.get(mistake) or GRADIENTS[mistake]
    source = plant(forward() if mistake in ATTENTION else backward(), known)
    device = CpuDevice(gpu("h200"), threads=2)
    there = evaluate(device, source, cache)
    device.close()
    here = evaluate(comparing, source, cache)
    assert here.outcome is there.outcome is not Outcome.OK
    # How many elements are left unwritten is the threads' doing, where several write to one place.
    same = _uncounted(here.message) == _uncounted(there.message)
    assert same or "launch" in here.outcome.value


@pytest.mark.parametrize("which", ["forward", "backward", "added"])
def test_the_same_kernels_without_a_mistake_are_right(which: str, comparing: ComparingCpu, cache: BuildCache) -> None:
    """With hard inputs, whose results hold NaN, and other strides, whose outputs hold gaps."""
    added = which == "added"
    source = forward() if which == "forward" else backward("in_place", dtype="fp32") if added else backward()
    references = [unit.reference for unit in expected(source.problem)[1].units]
    assert any(np.isnan(reference).any() for unit in references for reference in unit.values())
    device = CpuDevice(gpu("h200"), threads=2)
    there = evaluate(device, source, cache)
    device.close()
    here = evaluate(comparing, source, cache, deterministic=not added)
    assert here.outcome is there.outcome is Outcome.OK
    assert comparing.host == []
    assert here.verification is not None
    assert there.verification is not None
    if not added:  # the order of additions is another in each run
        assert here.verification == there.verification


def test_inputs_are_told_from_their_copies(comparing: ComparingCpu, cache: BuildCache) -> None:
    right, end = forward(), "element* const result"
    write = "if (threadIdx.x == 0) q.data[0] = from_float<element>(9.0f);"
    one = Bench(comparing, get_op("forward"), *expected(right.problem))
    for writes in (write, write + write.replace("q.", "k.")):
        wrong = plant(right, Planted(end, f"{writes} {end}"))
        verdict = one.evaluate(build_emulator(wrong, cache), wrong.plan, None)
        assert (verdict.outcome, verdict.message) == (Outcome.WRONG_RESULT, "input q was changed")
        verdict = one.evaluate(build_emulator(right, cache), right.plan, None)
        assert (verdict.outcome, verdict.message) == (Outcome.OK, "")
    comparing.host.clear()
    comparing.uploads.clear()
    assert one.evaluate(build_emulator(right, cache), right.plan, None).outcome is Outcome.OK
    assert (comparing.host, comparing.uploads) == ([], [])


@pytest.mark.parametrize(("free", "builds"), [(100_000, True), (1 << 30, False)])
def test_without_room_or_a_compiler_the_host_compares(free: int, builds: bool, cache: BuildCache) -> None:
    device, source = ComparingCpu(free, builds=builds), forward()
    try:
        assert evaluate(device, source, cache).outcome is Outcome.OK
        assert "out" in device.host
        assert not any(name.startswith(OURS) for name in device.uploads)
    finally:
        device.close()
