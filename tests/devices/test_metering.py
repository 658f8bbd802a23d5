"""Measuring energy, with a clock and a GPU that a test moves."""

from dataclasses import dataclass, field

import pytest

from autotune.core.errors import DeviceRefused
from autotune.core.measurement import Energy
from autotune.devices.metering import Counter, Integrated, batch_of, energy_of, idle_power_w, middle


@dataclass
class Bench:
    """A GPU that draws `busy_w` while it works and `idle_w` else; its counter moves every 100 ms of its time."""

    call_s: float
    busy_w: float = 500.0
    idle_w: float = 80.0
    now: float = 0.0
    mj: float = 0.0
    runs: list[int] = field(default_factory=list)
    _shown: tuple[int, float] = (0, 0.0)

    def run(self, calls: int) -> None:
        self.runs.append(calls)
        self._pass(calls * self.call_s, self.busy_w)

    def sleep(self, seconds: float) -> None:
        self._pass(seconds, self.idle_w)

    def clock(self) -> float:
        return self.now

    def counter(self) -> int:
        tick = int(self.now / 0.1)
        if tick != self._shown[0]:
            self._shown = tick, self.mj
        return int(self._shown[1])

    def _pass(self, seconds: float, watts: float) -> None:
        self.now += seconds
        self.mj += 1e3 * seconds * watts


def test_a_counter_gives_the_energy_of_a_call() -> None:
    bench = Bench(call_s=0.00008)
    found = energy_of(bench.run, 0.08, Counter(bench.counter), 0.5, bench.clock)
    assert found.mj == pytest.approx(40.0, rel=1e-3)  # 500 W for 80 us
    assert found.power_w == pytest.approx(500.0, rel=1e-3)
    assert found.call_ms == pytest.approx(0.08)
    assert found.calls * 0.00008 == pytest.approx(found.seconds)
    assert 0.5 <= found.seconds < 0.65
    assert (found.method, found.idle_w) == ("NVML energy counter", None)
    assert set(bench.runs) == {batch_of(0.08)} == {125}


def test_it_warms_up_and_begins_where_the_counter_moves() -> None:
    """A GPU that was idle until then: none of that is counted."""
    bench = Bench(call_s=0.01)
    bench.sleep(3.07)
    assert energy_of(bench.run, 10.0, Counter(bench.counter), 0.2, bench.clock).power_w == pytest.approx(
        500.0, rel=1e-3
    )


def test_a_host_that_is_late_shows_in_the_time_of_a_call() -> None:
    bench = Bench(call_s=0.000002)

    def run(calls: int) -> None:
        bench.run(calls)
        bench.sleep(calls * 0.000004)  # launching takes 6 us

    found = energy_of(run, 0.002, Counter(bench.counter), 0.5, bench.clock)
    assert found.call_ms == pytest.approx(0.006)
    assert found.mj == pytest.approx(2e-3 * 500 + 4e-3 * 80, rel=1e-3)
    assert bench.runs[0] == 2000


def test_sampled_power_is_integrated_where_there_is_no_counter() -> None:
    bench = Bench(call_s=0.0004)
    gauge = Integrated(lambda: 250.0, bench.clock)
    found = energy_of(bench.run, 0.4, gauge, 0.5, bench.clock)
    assert found.mj == pytest.approx(100.0)
    assert found.power_w == pytest.approx(250.0)
    assert found.method == "NVML power, integrated"
    assert sum(bench.runs[: -found.calls // 25]) * 0.0004 > 1.0  # drivers average over a second


def test_the_trapezoids_of_sampled_power() -> None:
    moments, watts = iter([0.0, 1.0, 3.0]), iter([100.0, 200.0, 100.0])
    gauge = Integrated(lambda: next(watts), lambda: next(moments))
    assert [gauge.read(), gauge.read(), gauge.read()] == [0.0, 150e3, 450e3]


def test_idle_power() -> None:
    bench = Bench(call_s=0.1)
    assert idle_power_w(Counter(bench.counter), bench.clock, bench.sleep) == pytest.approx(80.0, rel=1e-3)
    assert bench.runs == []


def test_a_counter_that_stands_still_is_none() -> None:
    bench = Bench(call_s=0.01)
    with pytest.raises(DeviceRefused, match="NVML energy counter has stood still for 5 s"):
        energy_of(bench.run, 10.0, Counter(lambda: 7), 0.5, bench.clock)
    with pytest.raises(DeviceRefused, match="says nothing any more"):
        energy_of(bench.run, 10.0, Counter(lambda: None), 0.5, bench.clock)


def test_batches_are_as_long_as_a_look_at_the_gauge() -> None:
    assert [batch_of(ms) for ms in (0.001, 0.065, 3.0, 10.0, 2500.0)] == [2000, 153, 3, 1, 1]


def test_the_middle_of_several_runs() -> None:
    runs = [Energy(mj, mj, 1.0, 1, 1.0, "m") for mj in (5.0, 1.0, 3.0)]
    assert middle(runs).mj == 3.0
    assert middle(runs[:2]).mj == 1.0
