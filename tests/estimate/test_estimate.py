from dataclasses import replace

import pytest

from autotune.core.errors import LaunchError
from autotune.core.measurement import KernelResources
from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, Zero
from autotune.estimate.fallback import METHOD, estimate
from autotune.gpus.known import gpu

H200 = gpu("h200")
MB = 1 << 20
FLOPS, BYTES = 1e11, 48.0 * MB
RESOURCES = KernelResources("k", 128, 0, 0, 40_000, 128, 0.25)


def pointer(name: str) -> PointerArg:
    return PointerArg(name, name, 0, "fp32", "input")


def launch(*names: str, kernel: str = "k", blocks: int = 132 * 16) -> Launch:
    return Launch(kernel, (blocks, 1, 1), (128, 1, 1), 40_000, (*map(pointer, names), ScalarArg("T", "int", 8)))


def plan(*steps: Launch | Zero, elements: int = 4 * MB) -> LaunchPlan:
    return LaunchPlan(tuple(Buffer(name, "fp32", elements, "input") for name in "abcs"), steps)


def ms(of: LaunchPlan, resources: KernelResources = RESOURCES, flops: float = FLOPS) -> float:
    return estimate(flops, BYTES, of, (resources, replace(resources, kernel="k2")), H200).median_ms


ONE = plan(launch("a", "b", "c"))


def test_it_is_labelled_as_an_estimate_and_deterministic() -> None:
    first = estimate(FLOPS, BYTES, ONE, (RESOURCES,), H200)
    assert (first.kind, first.method, first.repeats) == ("estimated", METHOD, 0)
    assert first.method.startswith("estimate")
    assert first.min_ms == first.q1_ms == first.median_ms == first.q3_ms > 0
    assert estimate(FLOPS, BYTES, ONE, (RESOURCES,), H200) == first


def test_a_launch_bound_by_arithmetic_worked_out_by_hand() -> None:
    # 0.7 of the peak; 64 values a thread: 1/(1+8/8); 16 warps: 16/18; full warps, 16 blocks an SM, no spills.
    efficiency = 0.7 * 0.5 * 16 / 18
    assert ms(ONE) == pytest.approx(1e3 * FLOPS / (66.9e12 * efficiency) + 2e-3)


def test_a_launch_bound_by_memory_worked_out_by_hand() -> None:
    nbytes = 3 * 4 * 4 * MB
    assert ms(ONE, flops=1.0) == pytest.approx(1e3 * nbytes / (4800e9 * 0.9 * 16 / 18) + 2e-3)


def test_it_is_never_faster_than_the_roofline() -> None:
    assert ms(ONE) > 1e3 * FLOPS / 66.9e12
    assert estimate(0.0, 1e12, ONE, (RESOURCES,), H200).median_ms >= 1e15 / 4800e9


@pytest.mark.parametrize(
    "worse",
    [
        replace(RESOURCES, spill_bytes=1024),
        replace(RESOURCES, occupancy=0.0625),
        replace(RESOURCES, registers=32),
    ],
)
def test_worse_resources_take_longer(worse: KernelResources) -> None:
    assert ms(ONE, worse) > 1.05 * ms(ONE)


def test_without_shared_memory_it_takes_longer() -> None:
    unshared = plan(replace(ONE.launches[0], smem=0))
    assert ms(unshared, replace(RESOURCES, dynamic_smem=0)) > 3 * ms(ONE)


def test_a_grid_with_a_tail_or_idle_sms_takes_longer() -> None:
    tail = ms(plan(launch("a", "b", "c", blocks=133)))
    full = ms(plan(launch("a", "b", "c", blocks=264)))
    idle = ms(plan(launch("a", "b", "c", blocks=33)))
    assert full < tail < idle


def test_half_filled_warps_take_twice_as_long() -> None:
    narrow = plan(replace(ONE.launches[0], block=(16, 1, 1)))
    whole = plan(replace(ONE.launches[0], block=(32, 1, 1)))
    resources = replace(RESOURCES, threads=16), replace(RESOURCES, threads=32)
    assert ms(narrow, resources[0]) - 2e-3 == pytest.approx(2 * (ms(whole, resources[1]) - 2e-3))


def test_a_pipeline_pays_for_the_matrices_it_keeps_in_memory() -> None:
    pipeline = plan(launch("a", "b", "s"), launch("s", "c", kernel="k2"))
    assert ms(pipeline, flops=1.0) > 1.6 * ms(ONE, flops=1.0)


def test_a_row_wise_helper_takes_few_of_the_flops() -> None:
    buffers = tuple(Buffer(name, "fp32", size, "input") for name, size in (("a", 4 * MB), ("b", 4 * MB), ("s", 65536)))
    main, helper = launch("a", "b", "a"), launch("a", "s", kernel="k2")
    alone = ms(LaunchPlan(buffers, (main,)))
    assert ms(LaunchPlan(buffers, (main, helper))) < 1.1 * alone


def test_zeroing_costs_its_bytes() -> None:
    assert ms(plan(Zero("s"), *ONE.steps)) - ms(ONE) == pytest.approx(1e-3 + 1e3 * 16 * MB / (4800e9 * 0.9))


def test_tensor_cores_raise_the_ceiling() -> None:
    fast = estimate(FLOPS, BYTES, ONE, (RESOURCES,), H200, tensor_cores=True)
    assert fast.median_ms < 0.2 * ms(ONE)


def test_a_faster_gpu_takes_less() -> None:
    slow = estimate(FLOPS, BYTES, ONE, (RESOURCES,), gpu("t4")).median_ms
    assert slow > 5 * ms(ONE)


def test_a_launch_without_resources_or_that_does_not_fit() -> None:
    with pytest.raises(LaunchError, match="resources are not known"):
        estimate(FLOPS, BYTES, ONE, (), H200)
    with pytest.raises(LaunchError, match="does not fit on an SM of NVIDIA H200"):
        ms(ONE, replace(RESOURCES, occupancy=0.0))
