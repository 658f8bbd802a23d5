"""Several of our configurations and the peers on the same tensors, timed in turns on a GPU."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.answers.best import Best
from autotune.bench.compare import BUDGET, reason_of
from autotune.bench.contender import Call, Contender, named_outputs
from autotune.bench.exact import difference
from autotune.bench.ours import Ours, look_up
from autotune.bench.peers import chosen_peers
from autotune.bench.rounds import Timed, interleaved
from autotune.bench.torch_lab import TorchLab, open_lab
from autotune.bench.torch_timing import Tensors, versions
from autotune.core.problem import Problem
from autotune.devices.driver import Driver, cuda_driver

PEERS = "flash,cudnn,efficient,flash4"
ROUNDS = 3
HOPELESS = 4.0
"""Who took this many times the fastest one's time in the first round is timed in no other one."""


@dataclass
class GpuRounds:
    """Times in a lab; `db` is the database in which the forward kernel is looked up that makes what backward needs."""

    lab: TorchLab
    driver: Driver
    db: str | None = None

    @classmethod
    def open(cls, db: str | None = None) -> "GpuRounds":
        """On the first GPU.

        Raises:
            DeviceMissing: there is none, or no PyTorch.
        """
        return cls(open_lab("cuda"), cuda_driver(), db)

    def environment(self) -> dict[str, str]:
        """What is measured with."""
        return {**self.lab.environment(), **versions(self.lab.torch)}

    def __call__(self, problem: Problem, ours: Mapping[str, Best]) -> dict[str, Any]:
        """Medians by name, of `ours` and of every peer that takes the problem, why others do not, and for each of ours
        how far its outputs are from the first peer's.

        Of equal configurations one is timed, and its time stands for all.
        """
        with self.lab.emptied():
            return self._measured(problem, ours)

    def _measured(self, problem: Problem, ours: Mapping[str, Best]) -> dict[str, Any]:
        tensors, refused = self.lab.tensors(problem), dict[str, str]()
        peers = self._running(problem, tensors, chosen_peers(PEERS), refused)
        first: dict[str, str] = {}  # of each configuration, which of ours it is timed as
        for name, found in ours.items():
            first.setdefault(found.candidate.key, name)
        mine = [self._ours(name, ours[name], problem) for name in first.values()]
        running = {**self._running(problem, tensors, mine, refused), **peers}
        reference = next(iter(peers.values()), None)
        apart = {one.name: self._apart(problem, running[one.name][1], reference) for one in mine if one.name in running}

        def measure(name: str) -> Timed:
            contender, call = running[name]
            with contender.within():
                return Timed(self.lab.kernel(call, BUDGET))

        times = interleaved(list(running), measure, ROUNDS, HOPELESS, list(ours))
        rounds = {name: [timed.kernel.median_ms for timed in of_name] for name, of_name in times.items()}
        ms = {name: statistics.median(of_name) for name, of_name in rounds.items()}
        ms |= {name: ms[first[f.candidate.key]] for name, f in ours.items() if first[f.candidate.key] in ms}
        return {"ms": ms, "rounds": rounds, "refused": refused, "difference": apart}

    def _ours(self, name: str, found: Best, problem: Problem) -> Ours:
        """One of our configurations as a contender; other problems are looked up."""
        look = look_up(self.lab.spec, self.db)
        one = Ours(
            self.lab.torch, lambda asked: found if asked == problem else look(asked), self.driver, self.lab.index,
            in_place=True,
        )  # fmt: skip
        one.name = name
        return one

    def _running(
        self, problem: Problem, tensors: Tensors, contenders: Sequence[Contender], refused: dict[str, str]
    ) -> dict[str, tuple[Contender, Call]]:
        """Those that run the problem; why others refuse it, or are absent, goes into `refused`."""
        running: dict[str, tuple[Contender, Call]] = {}
        for contender in contenders:
            why = contender.why_absent() or contender.why_not(problem)
            if why is not None:
                refused[contender.name] = why[:160]
                continue
            try:
                with contender.within():
                    call = contender.call(problem, tensors)
                    call()
                    self.lab.wait()
            except Exception as error:  # noqa: BLE001 - whatever one raises, the others are still to be timed
                refused[contender.name] = reason_of(error)
            else:
                running[contender.name] = contender, call
        return running

    def _apart(self, problem: Problem, call: Call, reference: tuple[Contender, Call] | None) -> float | None:
        """||ours - peer|| / ||peer||, the largest over the outputs; None where there is no peer."""
        if reference is None:
            return None
        peer, other = reference
        mine = named_outputs(problem, call())
        with peer.within():
            return difference(mine, named_outputs(problem, other()))
