"""A lab whose clock is moved by those who are called in it, and contenders that do what they are told."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.contender import OUTPUTS, Call, Contender
from autotune.bench.measured import Error
from autotune.core.errors import DeviceMissing
from autotune.core.measurement import Timing
from autotune.core.problem import Problem
from autotune.devices.protocol import TimingBudget
from autotune.ops.registry import get_op

Values = NDArray[np.float64]

FORWARD = get_op("forward").problem(B=1, NH=2, T=512)
BACKWARD = get_op("backward").problem(B=1, NH=2, T=512)


@dataclass
class FakeJudge:
    """The right value of every output is 1, 2, 3, … by its place among the outputs."""

    names: tuple[str, ...]
    checked: int = 2
    slices: int = 2

    def errors(self, outputs: Mapping[str, Values]) -> dict[str, Error]:
        found = {}
        for place, name in enumerate(self.names, start=1):
            apart = np.abs(outputs[name] - place)
            finite = bool(np.isfinite(apart).all())
            largest = float(apart.max()) if finite else math.inf
            found[name] = Error(largest, largest / place)
        return found


@dataclass
class FakeLab:
    """A call says how long it takes by setting `ms` and `us`; `log` tells who was timed, in order."""

    ms: float = 0.0
    us: float = 0.0
    last: str = ""
    log: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    broken: frozenset[int] = frozenset()
    checked: int = 2
    emptied_times: int = 0

    def environment(self) -> Mapping[str, str]:
        return {"device": "a double", "driver": "580.1", "cuda": "13.0", "host": "here"}

    def tensors(self, problem: Problem) -> Any:
        if problem["T"] in self.broken:
            raise MemoryError("out of memory: 80 GB\nand a trace")
        return problem

    def judge(self, problem: Problem, tensors: Any) -> FakeJudge:
        assert tensors is problem
        return FakeJudge(OUTPUTS[problem.op], self.checked)

    def kernel(self, call: Call, budget: TimingBudget) -> Timing:
        call()
        self.log.append(self.last)
        return Timing("measured", self.ms, self.ms * 0.99, self.ms * 1.02, self.ms * 0.98, 7, "made up")

    def call_us(self, call: Call, count: int) -> float:
        call()
        self.counts.append(count)
        return self.us

    def wait(self) -> None:
        pass

    @contextmanager
    def emptied(self) -> Iterator[None]:
        yield
        self.emptied_times += 1


class Fake(Contender):
    """Takes these milliseconds in its rounds, the last one in all that follow."""

    def __init__(
        self, lab: FakeLab, name: str, *ms: float, us: float = 5.0, off: float = 0.0, absent: str | None = None,
        takes: str = "", raises: Exception | None = None, raises_in_round: int | None = None,
    ) -> None:  # fmt: skip
        self.name, self.title = name, name.title() if name != "autotune" else name
        self._lab, self._ms, self._us, self._off = lab, list(ms), us, off
        self._absent, self._takes, self._raises, self._late = absent, takes, raises, raises_in_round
        self._round = 0
        self.inside = 0

    def why_absent(self) -> str | None:
        return self._absent

    def why_not(self, problem: Problem) -> str | None:
        return f"it takes {self._takes}" if self._takes and problem.dtype != self._takes else None

    @contextmanager
    def within(self) -> Iterator[None]:
        self.inside += 1
        yield
        self.inside -= 1

    def versions(self) -> Mapping[str, str]:
        return {self.name: "1.0"}

    def results(self, problem: Problem, tensors: Any) -> Mapping[str, Any]:
        assert self.inside == 1
        if self._raises is not None:
            raise self._raises
        return {name: np.full(4, place + self._off) for place, name in enumerate(OUTPUTS[problem.op], start=1)}

    def said(self, problem: Problem) -> Mapping[str, Any]:
        return {"answer": "exact", "template": "flash_mma", "config": {"A": 1}} if self.name == "autotune" else {}

    def call(self, problem: Problem, tensors: Any) -> Call:
        self._round, calls = 0, 0

        def call() -> None:
            nonlocal calls
            assert self.inside == 1
            self._round = max(0, (calls - 1) // 2)  # once before the rounds, twice in each
            calls += 1
            if self._late is not None and calls > 1 and self._round >= self._late:
                raise RuntimeError(f"{self.name} broke")
            self._lab.last = self.name
            self._lab.ms, self._lab.us = self._ms[min(self._round, len(self._ms) - 1)], self._us

        return call


def missing(*_: object, **__: object) -> Any:
    """A lab that cannot be opened."""
    raise DeviceMissing("no GPU")
