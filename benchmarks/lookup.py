"""How long a look-up takes in a database of 100,000 measurements.

    python benchmarks/lookup.py [--rows 100000] [--json]

Makes the database in a temporary folder: 100 measurements each of 1,000 problems (or as many as `--rows` makes),
on one GPU, then asks for exact and nearest winners, first and again, and runs the command `autotune best`.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import autotune
from autotune.answers import lookup
from autotune.core.measurement import KernelResources, Measurement, OutputCheck, Timing, Verification
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import Store, open_store
from autotune.store.recording import Trial, make_row
from autotune.store.rows import candidate_row, device_row, now, problem_row
from autotune.store.tables import Winner

_PER_PROBLEM = 100
_H200 = DeviceIdentity("cuda", gpu("h200"))


def problems(count: int) -> list[Problem]:
    """Forward problems of many lengths and counts; one in four has the default head size, dtype and mask."""
    shapes = itertools.product((128 * i for i in range(1, 65)), (1, 2, 4, 8), (True, False), ("fp16", "bf16"))
    op = get_op("forward")
    return [op.problem(T=T, B=B, causal=causal, dtype=dtype) for T, B, causal, dtype in itertools.islice(shapes, count)]


def fill(store: Store, rows: int) -> None:
    """Write the measurements in one transaction, past the checks of `Store.record`, for speed."""
    family = builtin_templates("forward")[0]
    space = Space(family, get_op("forward").problem(), _H200.spec)
    generator = random.Random(0)
    candidates = [space.candidate(space[space.size * i // _PER_PROBLEM]) for i in range(_PER_PROBLEM)]
    with store.write() as session:
        device = device_row(session, _H200)
        stored = [(candidate, candidate_row(session, "forward", candidate)) for candidate in candidates]
        for problem in problems(rows // _PER_PROBLEM):
            row = problem_row(session, problem)
            made = [
                make_row(Trial(_H200, problem, candidate, f"{i:016x}", _ok(generator)), device, row, candidate_in)
                for i, (candidate, candidate_in) in enumerate(stored)
            ]
            session.add_all(made)
            session.flush()
            best = min(made, key=lambda measured: measured.ms or 0.0)
            session.add(
                Winner(
                    device_id=device.id, problem_id=row.id, kind="measured", measurement_id=best.id, updated_at=now()
                )
            )
            session.flush()
            session.expunge_all()


def _ok(generator: random.Random) -> Measurement:
    ms = generator.uniform(0.5, 5.0)
    return Measurement(
        Outcome.OK,
        timing=Timing("measured", ms, ms * 0.99, ms * 1.01, ms * 0.98, 25, "events, L2 flushed", 1980.0, 600.0, 60.0),
        verification=Verification("forward", (OutputCheck("out", 1e-4, 1e-3, 0),), 48, 48),
        resources=(KernelResources("attend", 128, 0, 0, 49152, 128, 0.25),),
        environment={"driver": "580.1", "compiler": "nvcc 13.0.88", "host": "benchmark"},
    )  # fmt: skip


def measure(db: Path, rows: int) -> dict[str, Any]:
    """Times of look-ups, medians; in milliseconds, microseconds and seconds as named."""
    known = problems(rows // _PER_PROBLEM)
    os.environ["AUTOTUNE_DB"] = str(db)
    autotune.best("forward", T=128, B=1)  # opens the database, loads the templates
    exact = iter(known)
    nearest = iter(range(129, 8000, 7))
    figures = {
        "rows": rows,
        "exact_first_ms": 1e3 * _median(lambda: _ask(next(exact).fields, "exact"), min(500, len(known))),
        "nearest_first_ms": 1e3 * _median(lambda: _ask({"T": next(nearest), "B": 3}, "nearest"), 200),
        "again_us": 1e6 * _median(lambda: autotune.best("forward", T=1024, B=4), 20_000),
    }
    lookup._ANSWERS.clear()
    command = [str(Path(sys.executable).with_name("autotune")), "best", "--op", "forward", "--T", "1024", "--json"]
    figures["command_s"] = _median(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), 7)
    return figures


def _ask(fields: dict[str, Any], answer: str) -> None:
    found = autotune.best("forward", **fields)
    assert found.answer == answer, found


def _median(action: Callable[[], object], repeats: int) -> float:
    return statistics.median(_times(action, repeats))


def _times(action: Callable[[], object], repeats: int) -> Iterator[float]:
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        yield time.perf_counter() - start


def main() -> None:
    """Build the database, measure, print."""
    parser = argparse.ArgumentParser(description="time look-ups in a large database")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.db"
        with open_store(path) as store:
            fill(store, given.rows)
        figures = measure(path, given.rows)
        figures["file_mb"] = path.stat().st_size / 1e6
    if given.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<18} {value:,.3f}" if isinstance(value, float) else f"{name:<18} {value:,}")


if __name__ == "__main__":
    main()
