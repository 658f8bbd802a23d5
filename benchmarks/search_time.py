"""How long a search would take on a machine of so many cores: the real engine, sampler and space, in pretended time.

    python -m benchmarks.search_time --cores 16 --build 2.4 --device 0.33 --ready 3.5

Each build takes a core for `--build` seconds, times a lognormal factor; each candidate that is verified takes the
device for `--device`, one that is given up after its first run a twentieth of that; the device is there after
`--ready`. What a candidate takes on the GPU is made up: a factor for each value of each parameter, drawn by lot. So
this tells what waits for what, not what is found. Told are the seconds until the first verdict and the last, how
many candidates were built, dropped and pruned, and for which share of the time until the last verdict the device
and the cores were at work.
"""

import argparse
import heapq
import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.measurement import Energy, Measurement, Timing, Wrong
from autotune.core.outcome import Outcome
from autotune.gpus.known import gpu
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.choose import choose_families, choose_subject
from autotune.tuning.evaluator import Finished, Load, Order
from autotune.tuning.joint_space import Families
from autotune.tuning.lane import GIVE_UP_FACTOR
from autotune.tuning.ledger import Ledger
from autotune.tuning.loop import Engine
from autotune.tuning.replayed import Unrecorded
from autotune.tuning.room import Spent, enough_under_way, enough_waiting
from autotune.tuning.samplers import make_strategy
from autotune.tuning.session import STARTUP

_SCATTER = 0.15  # standard deviation of the logarithms that are drawn by lot
_FIRST_RUN = 0.05  # of a verification's seconds
_BEGUN_S = 0.3  # until the first build begins


@dataclass(frozen=True)
class Machine:
    """Cores, seconds of a build and of a verification, and when the device is there."""

    cores: int
    build_s: float
    device_s: float
    ready_s: float


@dataclass
class Pretended:
    """Evaluates candidates in a time of its own: a core each for builds, in order of submission, and one device."""

    machine: Machine
    seed: int
    now: float = _BEGUN_S
    built: int = 0
    pruned: int = 0
    first: float = math.inf  # verdict
    best: float = math.inf
    building: Spent = field(default_factory=lambda: Spent(0.0, 0))
    device: Spent = field(default_factory=lambda: Spent(0.0, 0))
    busy: float = 0.0  # of all cores
    _cores: list[float] = field(default_factory=list)  # when each is free
    _built: dict[Candidate, float] = field(default_factory=dict)  # when; those that were dropped stay
    _waiting: set[Candidate] = field(default_factory=set)
    _order: dict[Candidate, int] = field(default_factory=dict)  # the most promising first

    def __post_init__(self) -> None:
        self._cores = [_BEGUN_S] * self.machine.cores

    @property
    def capacity(self) -> int:
        return enough_under_way(self.machine.cores, self.building, self.device)

    def expect(self, candidate: Candidate) -> None:
        """Build it, if that has not begun."""
        if candidate not in self._built:
            seconds = self._build_s(candidate)
            self._built[candidate] = max(self.now, heapq.heappop(self._cores)) + seconds
            heapq.heappush(self._cores, self._built[candidate])
            self.built += 1
            self.busy += seconds

    def submit(self, candidate: Candidate) -> None:
        self.expect(candidate)
        self._waiting.add(candidate)

    def poll(self, timeout_s: float) -> Sequence[Finished]:  # noqa: ARG002 - never waits
        if not self._waiting:
            return []
        candidate = min(self._waiting, key=lambda one: (max(self._built[one], self.now), self._place(one)))
        self._waiting.remove(candidate)
        ms, limit = self._ms(candidate), GIVE_UP_FACTOR * self.best
        pruned, cold = ms > limit, ms > 1.25 * limit
        took = self.machine.device_s * (_FIRST_RUN if cold else 1.0)
        self.now = max(self.now, self._built[candidate], self.machine.ready_s) + took
        self.first, self.pruned = min(self.first, self.now), self.pruned + pruned
        self.building = Spent(self.building.seconds + self._build_s(candidate), self.building.candidates + 1)
        self.device = Spent(self.device.seconds + took, self.device.candidates + 1)
        timing = Timing("measured", ms, ms, ms, ms, 9, "made up")
        return [Finished(candidate, "", Measurement(Outcome.PRUNED if pruned else Outcome.OK, "", timing))]

    def reconsider(self, order: Order) -> Sequence[Candidate]:
        ready = [candidate for candidate in self._waiting if self._built[candidate] <= self.now]
        ordered = order(sorted(ready, key=self._built.__getitem__)) if len(ready) > 1 else None
        if ordered is None:
            return []
        self._order = {candidate: place for place, candidate in enumerate(ordered)}
        left = [at - self.now for one in self._waiting if (at := self._built[one]) > self.now]
        kept = enough_waiting(self.building, self.device, left)
        gone = [] if kept is None else ordered[kept:]
        self._waiting.difference_update(gone)
        self.building = Spent(self.building.seconds, self.building.candidates + len(gone))
        return gone

    def note_best(self, ms: float) -> None:
        self.best = min(self.best, ms)

    def note_energy(self, ms: float, energy: Energy) -> None:
        """None is measured."""

    def load(self) -> Load:
        return Load()

    def retime(self, candidates: Sequence[Candidate]) -> Sequence[Timing | Wrong | None]:
        return [None for _ in candidates]

    def meter(self, candidates: Sequence[Candidate], rounds: int) -> Sequence[Energy | None]:  # noqa: ARG002
        return [None for _ in candidates]

    def drop(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        """Nothing to stop."""

    def _place(self, candidate: Candidate) -> int:
        return self._order.get(candidate, len(self._order))

    def _build_s(self, candidate: Candidate) -> float:
        return self.machine.build_s * math.exp(_SCATTER * _lot(self.seed, "build", candidate.key))

    def _ms(self, candidate: Candidate) -> float:
        lots = (_lot(self.seed, candidate.template, name, value) for name, value in candidate.values)
        return math.exp(abs(2.0 * _lot(self.seed, candidate.template)) + sum(_SCATTER * abs(lot) for lot in lots))


def _lot(*key: object) -> float:
    return float(np.random.default_rng(zlib.crc32(repr(key).encode())).normal())


@dataclass(frozen=True)
class Told:
    """What a pretended search came to."""

    first_s: float
    last_s: float
    built: int
    dropped: int
    pruned: int
    device_share: float
    cores_share: float

    def __str__(self) -> str:
        return (
            f"first verdict {self.first_s:.1f} s, last {self.last_s:.1f} s; built {self.built}, dropped {self.dropped}"
            f", pruned {self.pruned}; at work: device {self.device_share:.0%}, cores {self.cores_share:.0%}"
        )


def pretended(families: Families, machine: Machine, trials: int, seed: int) -> Told:
    """One search, whose first builds are those of the families' starts, a core each."""
    evaluator, ledger, starts = Pretended(machine, seed), Ledger(), families.starts()
    for candidate in starts[: machine.cores]:
        evaluator.expect(candidate)
    engine = Engine(
        families, ledger, Unrecorded(), evaluator, Clock(Budget(trials)), np.random.default_rng(seed),
        lambda seen: make_strategy("parzen", families, seen, seed), first=tuple(starts), startup=STARTUP,
    )  # fmt: skip
    for _ in engine.steps():
        pass
    last = evaluator.now
    return Told(
        evaluator.first, last, evaluator.built, engine.withdrawn, evaluator.pruned,
        evaluator.device.seconds / last, evaluator.busy / (machine.cores * last),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Pretend as many searches as there are seeds; the last line has the medians' seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="backward")
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--build", type=float, default=2.4)
    parser.add_argument("--device", type=float, default=0.33)
    parser.add_argument("--ready", type=float, default=3.5)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    subject = choose_subject(options.op, [], None)
    families = choose_families(subject.templates, subject.problem({"T": options.T}), gpu("h200"))
    machine = Machine(options.cores, options.build, options.device, options.ready)
    told = [pretended(families, machine, options.trials, seed) for seed in range(options.seeds)]
    print(*told, sep="\n")
    print(f"median of the last verdicts: {statistics.median(one.last_s for one in told):.1f} s")


if __name__ == "__main__":
    main()
