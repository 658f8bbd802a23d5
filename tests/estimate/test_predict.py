from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.errors import LaunchError
from autotune.core.measurement import KernelResources
from autotune.core.model_version import MODEL
from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, Zero
from autotune.estimate.counts import Counts
from autotune.estimate.model import METHOD, OVERLAP, Estimate, predict
from autotune.estimate.schedule import Phase, Schedule
from autotune.gpus.known import gpu, gpus
from autotune.gpus.rates import rates_of
from benchmarks.estimate_samples import Sample, is_held_out, load_samples, qualities, rank_correlation

H200 = gpu("h200")
SMS, CLOCK = 132, 1.98e9
MB = 1 << 20
RESOURCES = KernelResources("k", 128, 0, 0, 40_000, 128, 0.25)  # 4 blocks of 4 warps an SM
WARPS = 132 * 16 * 4
WORK = Counts(
    "k", fp32=1e10, special=1e7, shared_loads=1e7, shared_stores=1e6, wavefronts=4e7, global_loads=1e6,
    global_stores=1e5, sectors_loaded=4e6, sectors_stored=4e5, barriers=WARPS * 8.0, shuffles=1e5,
)  # fmt: skip
NOTHING = Counts("k")
SAMPLES = Path(__file__).parent.parent / "data" / "estimate_samples.jsonl.gz"


def launch(blocks: int = 132 * 16, kernel: str = "k", grid: tuple[int, int, int] | None = None) -> Launch:
    args = (PointerArg("a", "a", 0, "fp32", "input"), ScalarArg("T", "int", 8))
    return Launch(kernel, grid or (blocks, 1, 1), (128, 1, 1), 40_000, args)


def plan(*steps: Launch | Zero) -> LaunchPlan:
    return LaunchPlan((Buffer("a", "fp32", 64 * MB, "input"), Buffer("z", "fp32", MB, "workspace")), steps)


def schedule(
    clocks: float = 0.0, full: float | None = None, *, before: float = 0.0, resident: int = 4, instructions: float = 0.0
) -> Schedule:
    """A loop of one round, alone and with all blocks on the SM, and what comes before it."""
    loop = Phase(1.0, clocks, clocks if full is None else full, loop=True)
    return Schedule("k", resident, (loop, Phase(1.0, before, before, loop=False)), instructions, 0.0, 0.0)


def estimate(
    counts: Counts | Sequence[Counts] = WORK, of: LaunchPlan | None = None, resources: KernelResources = RESOURCES,
    device: str = "h200", of_warps: Schedule | None = None,
) -> Estimate:  # fmt: skip
    of = of or plan(launch())
    several = [counts] if isinstance(counts, Counts) else counts
    schedules = [of_warps or schedule(3000.0, 9000.0)] * len(several)
    return predict(of, (resources, replace(resources, kernel="k2")), several, schedules, gpu(device))


def warps_ms(of_warps: Schedule, counts: Counts = NOTHING, of: Launch | None = None) -> float:
    return 1e3 * estimate(counts, plan(of or launch()), of_warps=of_warps).launches[0].parts["warps"]


def test_it_is_labelled_as_an_estimate_and_deterministic() -> None:
    timing = estimate().timing
    assert (timing.kind, timing.method, timing.repeats) == ("estimated", METHOD, 0)
    assert timing.method.startswith(f"estimate, model {MODEL}: ")
    assert estimate() == estimate()
    assert estimate().to_json()["launches"][0]["kernel"] == "k"


def test_nothing_to_do_takes_the_launch() -> None:
    assert estimate(NOTHING, of_warps=schedule()).ms == pytest.approx(4e-3)
    two = plan(launch(), Zero("z"), launch(kernel="k2"))
    assert estimate([NOTHING, Counts("k2")], two, of_warps=schedule()).ms == pytest.approx(
        6e-3 + 1e3 * 4 * MB / (0.92 * 4800e9)
    )


def test_even_blocks_come_in_waves() -> None:
    # 16 blocks an SM, 4 at a time.
    assert warps_ms(schedule(3000.0, 9000.0, before=500.0)) == pytest.approx(1e3 * 4 * 9500 / CLOCK)


def test_blocks_that_share_an_sm_with_fewer_are_faster() -> None:
    some = schedule(3000.0, 9000.0)
    assert some.clocks(1) == 3000.0
    assert some.clocks(2) == 5000.0
    assert warps_ms(some, of=launch(SMS)) == pytest.approx(1e3 * 3000 / CLOCK)
    assert warps_ms(some, of=launch(5 * SMS)) == pytest.approx(1e3 * (9000 + 3000) / CLOCK)
    assert warps_ms(some, of=launch(4 * SMS + 1)) == pytest.approx(1e3 * (9000 + 3000) / CLOCK)


def test_uneven_blocks_by_hand() -> None:
    # One at a time on an SM; the work of two blocks is 1.5 and 0.5 of the mean, their beginnings take the same.
    counts = replace(NOTHING, first=1.5)
    one = schedule(1000.0, resident=1, before=100.0)
    assert warps_ms(one, counts, launch(2)) == pytest.approx(1e3 * 1600 / CLOCK)
    heavy_first = warps_ms(one, replace(NOTHING, first=1.5, axis=1), launch(grid=(SMS, 2, 1)))
    assert heavy_first == pytest.approx(1e3 * (1600 + 600) / CLOCK)


def test_two_blocks_on_an_sm_slow_one_another_until_the_first_has_ended() -> None:
    # 1.5 and 0.5 of 1000 clocks alone, twice that together: the short one ends after 1000, the long one has had a third
    # of its 3000 by then, and does the rest of its 1500 alone.
    counts = replace(NOTHING, first=1.5, axis=1)
    both = warps_ms(schedule(1000.0, 2000.0, resident=2), counts, launch(grid=(SMS, 2, 1)))
    assert both == pytest.approx(1e3 * (1000 + 1000) / CLOCK)


def test_heavy_blocks_last_take_longer_than_first() -> None:
    first, even, last = (estimate(replace(WORK, first=share)).ms for share in (1.9, 1.0, 0.1))
    assert first < last
    assert even < last


def test_warps_and_memory_overlap() -> None:
    found = estimate(Counts("k", global_loads=1e5, sectors_loaded=1e8), of_warps=schedule(9000.0)).launches[0]
    warps, memory = found.parts["warps"], max(found.parts["l2"], found.parts["dram"])
    assert found.seconds == pytest.approx((warps**OVERLAP + memory**OVERLAP) ** (1 / OVERLAP))


def test_parts_worked_out_by_hand() -> None:
    counts = Counts("k", fp32=1e10, shared_loads=1e8, wavefronts=4e8, tensor=1e7, special=1e8)
    parts = estimate(counts, of_warps=schedule(700.0, instructions=1000.0)).launches[0].parts
    assert parts["fp32"] == pytest.approx(1e10 / 66.9e12)
    assert parts["issue"] == pytest.approx(1000 * WARPS / 4 / SMS / CLOCK)
    assert parts["shared"] == pytest.approx(4e8 / SMS / CLOCK)
    assert parts["special"] == pytest.approx(1e8 / 16 / SMS / CLOCK)
    # At best one product of 2048 multiply-adds a clock and SM.
    assert parts["tensor"] == pytest.approx(1e7 / 0.62 / SMS / CLOCK)
    assert parts["latency"] == pytest.approx(4 * 700 / CLOCK)


def test_memory_worked_out_by_hand() -> None:
    parts = estimate(Counts("k", global_loads=1e5, sectors_loaded=1e8)).launches[0].parts
    assert parts["dram"] == pytest.approx(4 * 64 * MB / (0.92 * 4800e9))  # the buffer once: the rest is found in L2
    assert parts["l2"] == pytest.approx(32e8 / (5120 * CLOCK))
    assert parts["port"] == pytest.approx(32e8 / 64 / SMS / CLOCK)


def test_a_launch_that_waits_says_so() -> None:
    assert estimate(NOTHING, of_warps=schedule(500.0)).launches[0].waiting
    assert not estimate(of_warps=schedule(1.0)).launches[0].waiting


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
    of, counts = plan(launch(), launch(kernel="k2")), (Counts("k", sectors_loaded=8e6), Counts("k2", fp32=1e11))
    both = RESOURCES, replace(RESOURCES, kernel="k2")
    assert predict(of, both, counts, (schedule(1e3), schedule(1e6)), H200).bound == "ALU"
    assert predict(of, both, counts, (schedule(1e6), schedule(1e3)), H200).bound == "memory"


def test_intensity_and_ridge() -> None:
    found = estimate(Counts("k", fp32=3.2e9, sectors_loaded=1e6))
    assert found.intensity == pytest.approx(100.0)
    assert found.ridge == pytest.approx(66.9e12 / 4800e9)
    assert estimate(Counts("k", tensor=1e6)).ridge == pytest.approx(0.62 * 4096 * SMS * CLOCK / 4800e9)


def test_on_every_gpu_of_the_table() -> None:
    times = {spec.name: estimate(device=spec.name).ms for spec in gpus()}
    assert min(times.values()) > 0
    assert times["t4"] > 4 * times["h200"]
    assert times["t4"] > times["a100"] > times["h200"]
    assert rates_of(gpu("l4")).l2_bytes == 64 * 58  # nothing is published: all ports busy
    assert rates_of(gpu("a100")).l2_bytes == 5120


def test_what_does_not_fit_together_is_said() -> None:
    with pytest.raises(LaunchError, match="1 launches, but counts of 2 and schedules of 2"):
        estimate([WORK, WORK])
    with pytest.raises(LaunchError, match="resources are not known"):
        estimate(of=plan(launch(kernel="other")))
    with pytest.raises(LaunchError, match="does not fit on an SM of NVIDIA H200"):
        estimate(resources=replace(RESOURCES, occupancy=0.0))


def test_estimates_rank_what_an_h200_measured() -> None:
    """The first 20 of each family in benchmarks/data/estimate_h200_random.jsonl.gz of the half that nothing was fitted
    to, at T=1024."""
    samples = load_samples(SAMPLES)
    assert all(map(is_held_out, samples))
    found = qualities(samples)
    assert len(found) == 6
    for quality in found:
        assert quality.n == 20
        assert quality.correlation > 0.75, quality.group
        assert 0.75 < quality.ratio < 1.25, quality.group


def test_samples_survive_a_round_trip() -> None:
    sample = load_samples(SAMPLES)[0]
    again = Sample.from_json(sample.to_json())
    assert again == sample
    assert again.estimate() == sample.estimate()


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1, 2], [1, 1, 2]) == pytest.approx(1.0)
