"""Winners against PyTorch's backends, interleaved in one run on a GPU.

    python -m benchmarks.against_peers --rows --out peers                    all rows of the recorded table
    python -m benchmarks.against_peers --op forward --T 512,1024 --out peers  any problems

Needs the extras `gpu` and `torch`. All work on the same tensors and are timed in the same way: each round times our
winner, then every peer, and the median round counts. OUT/rows.jsonl has a line a row, and rows that are there are not
measured again; OUT/peers.json and OUT/peers.md are everything.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from autotune import best
from autotune.answers.best import Best
from autotune.core.problem import Problem
from autotune.devices.cuda import CudaDevice
from autotune.devices.protocol import TimingBudget
from autotune.ops.registry import get_op
from benchmarks.ours import build_all, our_call, outputs_of
from benchmarks.peer_table import OURS, parse_targets, table
from benchmarks.peers import Call, Tensors, difference, peer_call, time_call, versions, wanted
from benchmarks.rows import add_row_options, chosen_rows
from benchmarks.sweep import add_problem_options, problems

ROUNDS = 3
BUDGET = TimingBudget(min_repeats=3, max_repeats=30, max_seconds=0.06, warmup=1)
"""A round of one call: many repeats of short ones, three of long ones."""

HOPELESS = 2.0
"""A peer that took this many times the fastest one's time is not timed in later rounds, unless it is in `ALWAYS`."""

ALWAYS = frozenset((OURS, "flash", "cudnn", "flash4"))
_OUTPUTS = {"forward": ("out",), "backward": ("dq", "dk", "dv")}


def inputs_of(device: CudaDevice, problem: Problem, tensors: Tensors, db: str | None) -> dict[str, torch.Tensor]:
    """The op's inputs by name; out and the log-sum-exp, which backward needs, by our own forward kernel."""
    given = {"q": tensors.q, "k": tensors.k, "v": tensors.v}
    if problem.op == "forward":
        return given
    assert tensors.dout is not None
    forward = look_up(device, get_op("forward").problem(**problem.fields), db)
    with our_call(device, forward, {**given, **outputs_of(forward)}) as (call, outputs):
        call()
        torch.cuda.synchronize()
        return {**given, **outputs(), "dout": tensors.dout}


def look_up(device: CudaDevice, problem: Problem, db: str | None) -> Best:
    """The best configuration known for a problem on this GPU."""
    fields: dict[str, Any] = problem.fields
    return best(problem.op, db=db, device=device.identity.spec, **fields)


def compare(device: CudaDevice, problem: Problem, db: str | None) -> dict[str, Any]:
    """One row: our median and each peer's, from interleaved rounds, and how far our outputs are from a peer's."""
    found = look_up(device, problem, db)
    tensors = Tensors.of(problem)
    inputs = inputs_of(device, problem, tensors, db)
    calls, refused = _peers(problem, tensors)
    with our_call(device, found, {**inputs, **outputs_of(found)}) as (call, outputs):
        call()
        torch.cuda.synchronize()
        apart = _difference(problem, outputs(), calls)
        rounds = timed_rounds({OURS: call, **calls})
    return {
        "problem": problem.to_json(),
        "candidate": found.candidate.key,
        "template_hash": found.candidate.template_hash,
        "answer": found.answer,
        "flops": get_op(problem.op).flops(problem),
        "ms": {name: statistics.median(times) for name, times in rounds.items()},
        "rounds": rounds,
        "difference": apart,
        "refused": refused,
    }


def _peers(problem: Problem, tensors: Tensors) -> tuple[dict[str, Call], dict[str, str]]:
    """Those that run the problem, and why the others do not."""
    calls: dict[str, Call] = {}
    refused: dict[str, str] = {}
    for name in wanted(problem):
        try:
            call = peer_call(problem, name, tensors)
            call()
            torch.cuda.synchronize()
        except (RuntimeError, ImportError) as error:
            refused[name] = str(error).splitlines()[0][:120]
        else:
            calls[name] = call
    return calls, refused


def timed_rounds(calls: Mapping[str, Call], time_one: Any = None) -> dict[str, list[float]]:
    """Milliseconds of every call in each round. A peer that is `HOPELESS` is left out after the first."""
    measure = time_one or (lambda call: time_call(call, BUDGET).median_ms)
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS):
        fastest = min((times[0] for times in rounds.values() if times), default=0.0)
        for name, call in calls.items():
            if number == 0 or name in ALWAYS or rounds[name][0] <= HOPELESS * fastest:
                rounds[name].append(measure(call))
    return rounds


def _difference(problem: Problem, ours: Mapping[str, torch.Tensor], calls: Mapping[str, Call]) -> float | None:
    """From the first peer that ran."""
    names = _OUTPUTS[problem.op]
    for call in calls.values():
        result = call()
        values = result if isinstance(result, tuple) else (result,)
        return difference(ours, dict(zip(names, values, strict=True)))
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, print the table. Returns how many rows failed."""
    options = _parser().parse_args(arguments)
    targets = parse_targets(options.target)
    wanted_problems = [row.problem for row in chosen_rows(options)] if options.rows else list(problems(options))
    options.out.mkdir(parents=True, exist_ok=True)
    device, start = CudaDevice(0), time.monotonic()
    found = [look_up(device, problem, options.db) for problem in _with_forwards(wanted_problems)]
    build_all(found, device.identity.spec.arch)
    print(f"{device.environment()} {versions()}; {len(found)} look-ups, built in {time.monotonic() - start:.0f} s")
    log = options.out / "rows.jsonl"
    failed = 0
    for number, problem in enumerate(wanted_problems, 1):
        if time.monotonic() - start > options.limit:
            print(f"the time is up before row {number} of {len(wanted_problems)}; run again to go on", flush=True)
            break
        if not is_known(log, look_up(device, problem, options.db)):
            failed += not _measure(device, problem, options.db, log, f"{number}/{len(wanted_problems)}")
    write(options.out, device, wanted_problems, log, targets)
    return failed


def _with_forwards(wanted_problems: Sequence[Problem]) -> list[Problem]:
    """The problems, and the forward ones whose results backward ones need; each once."""
    forwards = [get_op("forward").problem(**problem.fields) for problem in wanted_problems]
    return list(dict.fromkeys([*wanted_problems, *forwards]))


def _measure(device: CudaDevice, problem: Problem, db: str | None, log: Path, number: str) -> bool:
    start = time.monotonic()
    try:
        record = compare(device, problem, db)
    except Exception as error:  # noqa: BLE001 - the other rows are still to be measured
        print(f"{number:>6} FAILED {problem.key}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return False
    finally:
        torch.cuda.empty_cache()
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    times = " ".join(f"{name} {ms:.4f}" for name, ms in record["ms"].items())
    print(f"{number:>6} {time.monotonic() - start:4.1f} s {problem.key}: {times}", flush=True)
    return True


def records_in(log: Path) -> list[dict[str, Any]]:
    """What has been measured, the newest of each problem last."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def is_known(log: Path, found: Best) -> bool:
    """Whether this very candidate has been measured on the problem."""
    key = (found.problem.to_json(), found.candidate.key, found.candidate.template_hash)
    return any((record["problem"], record["candidate"], record["template_hash"]) == key for record in records_in(log))


def write(
    folder: Path, device: CudaDevice, wanted_problems: Sequence[Problem], log: Path, targets: Mapping[str, float]
) -> None:
    """OUT/peers.json and OUT/peers.md, with the newest record of each problem; prints the table."""
    newest = {json.dumps(record["problem"]): record for record in records_in(log)}
    keys = [json.dumps(problem.to_json()) for problem in wanted_problems]
    records = [newest[key] for key in keys if key in newest]
    environment = {**device.environment(), **versions()}
    (folder / "peers.json").write_text(
        json.dumps({"environment": environment, "rows": records}, indent=1), encoding="utf-8"
    )
    text = table(records, targets) if records else "nothing was measured"
    (folder / "peers.md").write_text(text + "\n", encoding="utf-8")
    print(text)


def _parser() -> argparse.ArgumentParser:
    rows_asked = argparse.ArgumentParser(add_help=False)
    rows_asked.add_argument("--rows", action="store_true")
    known, _ = rows_asked.parse_known_args()
    parser = argparse.ArgumentParser(description="winners against PyTorch's backends", parents=[rows_asked])
    (add_row_options if known.rows else add_problem_options)(parser)
    parser.add_argument("--db", default=None)
    parser.add_argument("--out", type=Path, default=Path("peers"), help="folder; what is there already is kept")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no row is begun")
    parser.add_argument("--target", default="fastest=1", help="ratios that a row must reach: cudnn=0.9,flash=1")
    return parser


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
