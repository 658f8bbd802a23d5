from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.devices.gpus import gpu, gpus
from autotune.devices.rates import rates_of
from autotune.errors import LaunchError
from autotune.estimate.counts import Counts
from autotune.estimate.model import (
    BARRIER_CLOCKS,
    FP32_UNDER_WAY,
    LOADS_UNDER_WAY,
    METHOD,
    OVERLAP,
    Estimate,
    predict,
)  # fmt: skip
from autotune.measurement import KernelResources
from autotune.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, Zero
from benchmarks.estimate_samples import Sample, load_samples, qualities, rank_correlation

H200 = gpu("h200")
SMS, CLOCK = 132, 1.98e9
MB = 1 << 20
RESOURCES = KernelResources("k", 128, 0, 0, 40_000, 128, 0.25)  # 4 blocks of 4 warps an SM
WARPS = 132 * 16 * 4
WORK = Counts(
    "k", fp32=1e10, special=1e7, shared_loads=1e7, shared_stores=1e6, wavefronts=4e7, global_loads=1e6,
    global_stores=1e5, sectors_loaded=4e6, sectors_stored=4e5, barriers=WARPS * 8.0, shuffles=1e5,
)  # fmt: skip
SAMPLES = Path(__file__).parent.parent / "data" / "estimate_samples.jsonl.gz"


def launch(blocks: int = 132 * 16, kernel: str = "k", grid: tuple[int, int, int] | None = None) -> Launch:
    args = (PointerArg("a", "a", 0, "fp32", "input"), ScalarArg("T", "int", 8))
    return Launch(kernel, grid or (blocks, 1, 1), (128, 1, 1), 40_000, args)


def plan(*steps: Launch | Zero) -> LaunchPlan:
    return LaunchPlan((Buffer("a", "fp32", 64 * MB, "input"), Buffer("z", "fp32", MB, "workspace")), steps)


def estimate(
    counts: Counts | Sequence[Counts] = WORK, of: LaunchPlan | None = None, resources: KernelResources = RESOURCES,
    device: str = "h200",
) -> Estimate:  # fmt: skip
    of = of or plan(launch())
    several = [counts] if isinstance(counts, Counts) else counts
    return predict(of, (resources, replace(resources, kernel="k2")), several, gpu(device))


def test_it_is_labelled_as_an_estimate_and_deterministic() -> None:
    timing = estimate().timing
    assert (timing.kind, timing.method, timing.repeats) == ("estimated", METHOD, 0)
    assert timing.method.startswith("estimate")
    assert estimate() == estimate()
    assert estimate().to_json()["launches"][0]["kernel"] == "k"


def test_nothing_to_do_takes_the_launch() -> None:
    assert estimate(Counts("k")).ms == pytest.approx(4e-3)
    assert estimate([Counts("k"), Counts("k2")], plan(launch(), Zero("z"), launch(kernel="k2"))).ms == pytest.approx(
        6e-3 + 1e3 * 4 * MB / (0.92 * 4800e9)
    )


def test_fused_multiply_adds_worked_out_by_hand() -> None:
    # All SMs do 66.9 TFLOP/s. A warp alone has 1e10 / 64 / WARPS instructions of 4 clocks, some of them at once.
    pipe = 1e10 / 66.9e12
    waiting = 4 * 1e10 / 64 / WARPS * 4.0 / FP32_UNDER_WAY / CLOCK  # 16 blocks an SM, 4 at a time: 4 waves
    together = (pipe**OVERLAP + waiting**OVERLAP) ** (1 / OVERLAP)
    found = estimate(Counts("k", fp32=1e10))
    assert found.ms == pytest.approx(4e-3 + 1e3 * together)
    assert found.launches[0].parts["fp32"] == pytest.approx(pipe)
    assert found.launches[0].parts["issue"] == pytest.approx(1e10 / 64 / 4 / SMS / CLOCK)
    assert (found.launches[0].blocks_per_sm, found.launches[0].waves) == (4, 4.0)


def test_shared_memory_worked_out_by_hand() -> None:
    parts = estimate(Counts("k", shared_loads=1e8, wavefronts=4e8)).launches[0].parts
    assert parts["shared"] == pytest.approx(4e8 / SMS / CLOCK)
    assert parts["latency"] == pytest.approx(4 * 1e8 / WARPS * 29 / LOADS_UNDER_WAY / CLOCK)


def test_barriers_worked_out_by_hand() -> None:
    alone = estimate(Counts("k", barriers=10.0 * WARPS)).launches[0]
    assert alone.parts["latency"] == pytest.approx(4 * 10 * BARRIER_CLOCKS / CLOCK)
    assert alone.waiting


def test_tensor_cores_reach_what_mma_reaches_on_hopper() -> None:
    parts = estimate(Counts("k", tensor=1e7)).launches[0].parts
    assert parts["tensor"] == pytest.approx(
        1e7 / 0.62 / SMS / CLOCK
    )  # at best one product of 2048 multiply-adds a clock and SM


def test_memory_worked_out_by_hand() -> None:
    parts = estimate(Counts("k", global_loads=1e5, sectors_loaded=1e8)).launches[0].parts
    assert parts["dram"] == pytest.approx(4 * 64 * MB / (0.92 * 4800e9))  # the buffer once: the rest is found in L2
    assert parts["l2"] == pytest.approx(32e8 / (5120 * CLOCK))
    assert parts["port"] == pytest.approx(32e8 / 64 / SMS / CLOCK)


@pytest.mark.parametrize(
    "count",
    ["fp32", "fp16", "special", "tensor", "shared_loads", "shared_stores", "wavefronts", "global_loads", "async_copies",
     "global_stores", "sectors_loaded", "sectors_stored", "barriers", "shuffles"],
)  # fmt: skip
def test_more_of_anything_is_never_faster_and_much_more_is_slower(count: str) -> None:
    value = getattr(WORK, count) or 1e7
    changed: list[dict[str, Any]] = [{count: value * factor} for factor in (0.5, 1.0, 2.0, 1e4)]
    times = [estimate(replace(WORK, **change)).ms for change in changed]
    assert times == sorted(times)
    assert times[3] > 1.5 * times[0]


def test_spills_and_lower_occupancy_take_longer() -> None:
    assert estimate(resources=replace(RESOURCES, spill_bytes=512)).ms > 1.02 * estimate().ms
    assert estimate(resources=replace(RESOURCES, occupancy=0.0625)).ms > 1.3 * estimate().ms


def test_a_grid_with_a_tail_or_idle_sms_takes_longer() -> None:
    full, tail, idle = (estimate(of=plan(launch(blocks))).ms for blocks in (264, 265, 33))
    assert full < tail < idle


def test_heavy_blocks_last_take_longer_than_first() -> None:
    first, even, last = (estimate(replace(WORK, first=share)).ms for share in (1.9, 1.0, 0.1))
    assert first < last
    assert even < last
    other_axis = estimate(replace(WORK, first=0.1, axis=1), plan(launch(grid=(132, 16, 1)))).ms
    assert other_axis == pytest.approx(estimate(replace(WORK, first=0.1), plan(launch(grid=(16, 132, 1)))).ms, rel=0.2)


@pytest.mark.parametrize(
    ("counts", "bound"),
    [
        (Counts("k", fp32=1e11, wavefronts=1e6), "ALU"),
        (Counts("k", special=1e9), "ALU"),
        (Counts("k", tensor=1e8, wavefronts=1e6), "tensor"),
        (Counts("k", fp32=1e9, shared_loads=1e7, wavefronts=1e9), "shared memory"),
        (Counts("k", fp32=1e8, sectors_loaded=8e6), "memory"),
        (Counts("k", fp32=1e8, sectors_stored=8e6), "memory"),
    ],
)
def test_what_binds(counts: Counts, bound: str) -> None:
    assert estimate(counts).bound == bound


def test_the_launches_that_take_longest_together_decide_what_binds() -> None:
    memory, alu = Counts("k", sectors_loaded=8e6), Counts("k2", fp32=1e11)
    assert estimate([memory, alu], plan(launch(), launch(kernel="k2"))).bound == "ALU"


def test_intensity_and_ridge() -> None:
    found = estimate(Counts("k", fp32=3.2e9, sectors_loaded=1e6))
    assert found.intensity == pytest.approx(100.0)
    assert found.ridge == pytest.approx(66.9e12 / 4800e9)
    assert estimate(Counts("k", tensor=1e6)).ridge == pytest.approx(0.62 * 4096 * SMS * CLOCK / 4800e9)


def test_on_every_gpu_of_the_table() -> None:
    times = {spec.name: estimate(device=spec.name).ms for spec in gpus()}
    assert min(times.values()) > 0
    assert times["t4"] > 4 * times["h200"]
    assert times["v100"] > times["a100"] > times["h200"]
    assert rates_of(gpu("l4")).l2_bytes == 64 * 58  # nothing is published: all ports busy
    assert rates_of(gpu("a100")).l2_bytes == 5120


def test_what_does_not_fit_together_is_said() -> None:
    with pytest.raises(LaunchError, match="1 launches, but counts of 2"):
        estimate([WORK, WORK])
    with pytest.raises(LaunchError, match="resources are not known"):
        estimate(of=plan(launch(kernel="other")))
    with pytest.raises(LaunchError, match="does not fit on an SM of NVIDIA H200"):
        estimate(resources=replace(RESOURCES, occupancy=0.0))


def test_estimates_rank_what_an_h200_measured() -> None:
    """Samples of the half of the configurations that nothing was fitted to, at T of 512 to 4096."""
    found = {quality.group: quality for quality in qualities(load_samples(SAMPLES))}
    assert len(found) == 9
    for group, quality in found.items():
        assert quality.n == 14
        assert quality.overall > 0.95, group
        assert 0.8 < quality.ratio < 1.2, group


def test_samples_survive_a_round_trip() -> None:
    sample = load_samples(SAMPLES)[0]
    again = Sample.from_json(sample.to_json())
    assert again == sample
    assert again.estimate() == sample.estimate()


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1, 2], [1, 1, 2]) == pytest.approx(1.0)
