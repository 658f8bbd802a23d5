"""Test doubles of a search: spaces made of Python lists, an evaluator and a device that are Python functions."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.measurement import Energy, Measurement, OutputCheck, Timing, Verification, Wrong
from autotune.core.outcome import Outcome
from autotune.core.values import Config, Value
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import Store, open_store
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.evaluator import Finished, Load, Order
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families, Family
from autotune.tuning.ledger import Ledger
from autotune.tuning.listed import ListedSpace
from autotune.tuning.loop import Engine
from autotune.tuning.samplers import make_strategy

IDENTITY = DeviceIdentity("cuda", gpu("h200"))
PROBLEM = get_op("forward").problem(T=64)


class ListSpace(ListedSpace):
    """A space whose valid configurations are those that pass a Python predicate."""

    def __init__(self, parameters: Mapping[str, Sequence[Value]], valid: Callable[[Config], bool]) -> None:
        names = list(parameters)
        every = (dict(zip(names, values, strict=True)) for values in itertools.product(*parameters.values()))
        super().__init__(parameters, filter(valid, every))

    def why_not(self, config: Config) -> str | None:
        return None if self.contains(config) else "the predicate says no"


def family(
    name: str = "fam",
    valid: Callable[[Config], bool] = lambda config: True,
    parameters: Mapping[str, Sequence[Value]] | None = None,
    **more: Sequence[Value],
) -> Family:
    values = {key: tuple(choices) for key, choices in {**(parameters or {}), **more}.items()}
    return Family(name, f"hash-{name}", values, {key: v[0] for key, v in values.items()}, ListSpace(values, valid))


VERIFIED = Verification(PROBLEM.key, (OutputCheck("out", 0.0, 1.0, 0, (0,)),), 1, 1)


def took(ms: float) -> Measurement:
    """An `ok` measurement of this many milliseconds."""
    return Measurement(Outcome.OK, "", Timing("measured", ms, ms, ms, ms, 7, "fake"), VERIFIED, build_seconds=0.1)


def failed(outcome: Outcome, message: str = "as planned") -> Measurement:
    return Measurement(outcome, message, build_seconds=0.1)


@dataclass
class FunctionEvaluator:
    """Answers candidates with `measure`, finalists with `again`; keeps what it was asked, in order."""

    measure: Callable[[Candidate], Measurement]
    capacity: int = 1
    again: Callable[[Candidate], Measurement] | None = None
    asked: list[Candidate] = field(default_factory=list)
    best_ms: float | None = None
    figures: list[tuple[float, float]] = field(default_factory=list)
    metered: list[tuple[Candidate, int]] = field(default_factory=list)
    _waiting: list[Candidate] = field(default_factory=list)

    def submit(self, candidate: Candidate) -> None:
        self.asked.append(candidate)
        self._waiting.append(candidate)

    def poll(self, timeout_s: float) -> Sequence[Finished]:
        if not self._waiting:
            return []
        candidate = self._waiting.pop(0)
        return [Finished(candidate, f"source of {candidate}", self.measure(candidate))]

    def reconsider(self, order: Order) -> Sequence[Candidate]:
        return []

    def note_best(self, ms: float) -> None:
        self.best_ms = ms

    def note_energy(self, ms: float, energy: Energy) -> None:
        self.figures.append((ms, energy.mj))

    def load(self) -> Load:
        return Load(waiting=len(self._waiting))

    def retime(self, candidates: Sequence[Candidate]) -> Sequence[Timing | Wrong | None]:
        again = self.again or self.measure
        found = [again(candidate) for candidate in candidates]
        return [Wrong(one.message) if one.outcome is Outcome.WRONG_RESULT else one.timing for one in found]

    def meter(self, candidates: Sequence[Candidate], rounds: int) -> Sequence[Energy | None]:
        self.metered += [(candidate, rounds) for candidate in candidates]
        again = self.again or self.measure
        return [again(candidate).energy for candidate in candidates]

    def drop(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        pass


def store(folder: Path) -> Store:
    return open_store(folder / "test.db")


def engine(
    families: Sequence[Family],
    evaluator: FunctionEvaluator,
    records: Records,
    *,
    sampler: str = "tpe",
    trials: int | None = None,
    timeout_s: float | None = None,
    seed: int = 0,
    startup: int = 0,
) -> Engine:
    joint = Families(families)
    return Engine(
        joint, Ledger(), records, evaluator, Clock(Budget(trials, timeout_s)), np.random.default_rng(seed),
        lambda seen: make_strategy(sampler, joint, seen, seed), first=joint.starts(), startup=startup,
    )  # fmt: skip


def run(search: Engine) -> Ledger:
    for _ in search.steps():
        pass
    return search.ledger
