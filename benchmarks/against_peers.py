"""Winners against PyTorch's backends, interleaved in one run on a GPU.

    python -m benchmarks.against_peers --op forward,backward --T 512,1024 --dtype fp16,fp32 --json results.json

Needs the extras `gpu` and `torch`. Each round times our winner, then every peer; the median round counts.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from autotune import best
from autotune.build.cache import BuildCache
from autotune.build.nvcc import build_cubin
from autotune.devices.base import TimingBudget
from autotune.devices.cuda import CudaDevice
from autotune.dtypes import numpy_dtype
from autotune.lookup import Best
from autotune.measurement import Timing
from autotune.ops.registry import get_op
from autotune.problem import Problem
from benchmarks.peers import time_peers, versions
from benchmarks.sweep import add_problem_options, problems

_ROUNDS = 3
_BUDGET = TimingBudget(min_repeats=10, max_repeats=50, max_seconds=0.3)


def time_ours(device: CudaDevice, found: Best) -> Timing:
    """The winner on standard normal inputs."""
    op = get_op(found.problem.op)
    source = found.source
    device.allocate(source.plan.buffers)
    inputs = {t.storage: t for t in op.tensors(found.problem) if t.role == "input"}
    small = op.inputs(op.unit_problem(found.problem), 0)
    for buffer in source.plan.buffers:
        if buffer.name in inputs:
            # One unit's values repeated: random enough to time, without a reference pass over a large problem.
            values = small[inputs[buffer.name].name].ravel()
            device.upload(buffer.name, _repeat(values, buffer.elements).astype(numpy_dtype(buffer.dtype)))
    program = device.load(build_cubin(source, device.identity.spec.arch, BuildCache()), source.plan)
    try:
        return device.time(program, source.plan, _BUDGET)
    finally:
        program.close()


def _repeat(values: Any, elements: int) -> Any:
    import numpy as np

    return np.resize(values, elements)


def compare(device: CudaDevice, problem: Problem, db: str | None) -> dict[str, Any]:
    """One row: our median, each peer's median, all from interleaved rounds."""
    found = best(db=db, device=device.identity.spec.name, **problem.to_json())
    rounds: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        rounds.setdefault("autotune", []).append(time_ours(device, found).median_ms)
        for name, timing in time_peers(problem, _BUDGET).items():
            rounds.setdefault(name, []).append(timing.median_ms)
    flops = get_op(problem.op).flops(problem)
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    return {
        "problem": problem.key,
        "candidate": found.candidate.key,
        "answer": found.answer,
        "ms": medians,
        "tflops": {name: flops / ms / 1e9 for name, ms in medians.items()},
    }


def main() -> None:
    """Measure, print a Markdown table, and write all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_problem_options(parser)
    parser.add_argument("--db", default=None)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    device = CudaDevice(0)
    rows = [compare(device, problem, options.db) for problem in problems(options)]
    print(f"{device.environment()} {versions()}")
    print(table(rows))
    if options.json:
        options.json.write_text(
            json.dumps({"environment": {**device.environment(), **versions()}, "rows": rows}, indent=1)
        )


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds (TFLOP/s), and our speed as a multiple of the fastest peer's."""
    names = ["autotune", *dict.fromkeys(name for row in rows for name in row["ms"] if name != "autotune")]
    lines = [f"| problem | {' | '.join(names)} | against the fastest peer | family |"]
    lines.append("|" + " --- |" * (len(names) + 3))
    for row in rows:
        cells = [f"{row['ms'][n]:.4f} ({row['tflops'][n]:.0f})" if n in row["ms"] else "" for n in names]
        fastest = min((ms for name, ms in row["ms"].items() if name != "autotune"), default=float("nan"))
        ratio = fastest / row["ms"]["autotune"]
        lines.append(f"| {row['problem']} | {' | '.join(cells)} | {ratio:.2f}× | {row['candidate'].split(' ')[0]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
