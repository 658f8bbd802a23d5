"""A worker of a fleet, `work(orders)`, or `python -m tests.fleet_worker JSON` with the fields of `Orders`.

It searches a space whose kernels are a Python function. It appends every X that it evaluates to `log`, as it begins,
and writes to `says` what it would print at its end, as JSON, or why it ended.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session as DatabaseSession

from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError
from autotune.core.measurement import Measurement
from autotune.store import Store
from autotune.store.claims import LEASE_S
from autotune.store.opening import open_engine
from autotune.store.patience import Patience
from autotune.store.records import Owner
from autotune.store.schema import ensure_schema
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.search_options import Options
from autotune.tuning.session import Session
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, family, took

BEST = 70


@dataclass
class Orders:
    """What a worker does. `place`: as if in a container of that name.

    `hangs`: for ever, on this X. `freezes`: in the midst of this write transaction, counted from one.
    """

    url: str
    log: str
    says: str = ""
    size: int = 100
    trials: int | None = None
    seconds: float = 0.0
    seed: int = 0
    sampler: str = "random"
    capacity: int = 3
    lease_s: float = LEASE_S
    place: str | None = None
    hangs: int | None = None
    freezes: int | None = None
    go: str | None = None
    patience: dict[str, float] = field(default_factory=dict)


class FreezingStore(Store):
    """Stops its own process in the midst of its write transaction number `at`, as a debugger or a laptop's lid does."""

    at: int | None = None
    writes: int = 0

    @contextmanager
    def write(self) -> Iterator[DatabaseSession]:
        with super().write() as session:
            yield session
            session.flush()
            self.writes += 1
            if self.writes == self.at:
                os.kill(os.getpid(), signal.SIGSTOP)


def time_of(x: int) -> float:
    return 1.0 + abs(x - BEST)


def work(orders: Orders) -> None:
    try:
        result = json.dumps(search(orders))
    except AutotuneError as error:
        result = str(error)
    Path(orders.says).write_text(result, encoding="utf-8")


def search(orders: Orders) -> dict[str, Any]:
    def measure(candidate: Candidate) -> Measurement:
        x = int(candidate.config["X"])
        with Path(orders.log).open("a", encoding="ascii") as file:
            file.write(f"{x}\n")
        while x == orders.hangs:
            time.sleep(60)
        time.sleep(orders.seconds)
        return known(candidate)

    def known(candidate: Candidate) -> Measurement:
        return took(time_of(int(candidate.config["X"])))

    owner = Owner.here() if orders.place is None else replace(Owner.here(), place=orders.place)
    engine = open_engine(orders.url, patience=Patience(**orders.patience))
    ensure_schema(engine, create=True)
    store = FreezingStore(engine)
    with store:
        records = Records(store, IDENTITY, PROBLEM, owner=owner, lease_s=orders.lease_s)
        session = Session(
            Families([family(X=range(orders.size))]), records, FunctionEvaluator(measure, orders.capacity, known),
            Clock(Budget(orders.trials)), Options(orders.trials, sampler=orders.sampler, seed=orders.seed),
            estimated=False,
        )  # fmt: skip
        if orders.go is not None:
            Path(f"{orders.log}.ready-{orders.seed}").touch()
            while not Path(orders.go).exists():
                time.sleep(0.01)
        store.at = orders.freezes
        findings = session.run()
    best = findings.ranked[0].candidate.config["X"] if findings.ranked else None
    return {
        "stopped": findings.engine.stopped, "trials": findings.ledger.trials, "new": findings.engine.new, "best": best,
    }  # fmt: skip


if __name__ == "__main__":
    work(Orders(**json.loads(sys.argv[1])))
