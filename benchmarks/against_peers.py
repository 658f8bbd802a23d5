"""Winners against PyTorch's backends, interleaved in one run on a GPU.

    python -m benchmarks.against_peers --rows --out peers                    all rows of the recorded table
    python -m benchmarks.against_peers --op forward --T 512,1024 --out peers  any problems

Needs a GPU and the extra `torch`. All work on the same tensors and are timed in the same way, by `autotune.bench`: each
round times our winner, then every peer, and the median round counts. OUT/rows.jsonl has a line a row, and rows that are
there are not measured again; OUT/peers.json and OUT/peers.md are everything. `autotune bench` compares any problems,
with more peers and with float64; this goes through the recorded table, and goes on where it was stopped.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from autotune.answers.best import Best
from autotune.bench.compare import BUDGET, reason_of
from autotune.bench.contender import OURS, Call, Contender, named_outputs
from autotune.bench.exact import difference
from autotune.bench.ours import Ours, build_all, look_up, with_forwards
from autotune.bench.peers import chosen_peers
from autotune.bench.rounds import Timed, interleaved
from autotune.bench.torch_lab import TorchLab, open_lab
from autotune.bench.torch_timing import Tensors, versions
from autotune.core.problem import Problem
from autotune.devices.driver import cuda_driver
from autotune.ops.registry import get_op
from benchmarks.peer_table import parse_targets, table
from benchmarks.rows import add_row_options, chosen_rows
from benchmarks.sweep import add_problem_options, problems

ROUNDS = 3
HOPELESS = 2.0
"""A peer that took this many times the fastest one's time is not timed in later rounds, unless it is in `ALWAYS`."""

ALWAYS = frozenset((OURS, "flash", "cudnn", "flash4"))
PEERS = "flash,cudnn,efficient,math,flash4"
"""Those of the recorded table."""


def compare(lab: TorchLab, problem: Problem, db: str | None) -> dict[str, Any]:
    """One row: our median and each peer's, from interleaved rounds, and how far our outputs are from a peer's."""
    look = look_up(lab.spec, db)
    found, tensors = look(problem), lab.tensors(problem)
    peers, refused = _peers(lab, problem, tensors)
    ours = Ours(torch, look, cuda_driver(), lab.index, in_place=True)
    calls = {OURS: ours.call(problem, tensors), **{name: call for name, (_, call) in peers.items()}}
    within = {name: peer.within for name, (peer, _) in peers.items()}
    outputs = named_outputs(problem, calls[OURS]())
    lab.wait()
    apart = _difference(problem, outputs, peers)

    def measure(name: str) -> Timed:
        around: AbstractContextManager[Any] = within[name]() if name in within else nullcontext()
        with around:
            return Timed(lab.kernel(calls[name], BUDGET))

    times = interleaved(list(calls), measure, ROUNDS, HOPELESS, ALWAYS)
    rounds = {name: [timed.kernel.median_ms for timed in of_name] for name, of_name in times.items()}
    return {
        "problem": problem.to_json(),
        "candidate": found.candidate.key,
        "template_hash": found.candidate.template_hash,
        "answer": found.answer,
        "flops": get_op(problem.op).flops(problem),
        "ms": {name: statistics.median(of_name) for name, of_name in rounds.items()},
        "rounds": rounds,
        "difference": apart,
        "refused": refused,
    }


def _peers(
    lab: TorchLab, problem: Problem, tensors: Tensors
) -> tuple[dict[str, tuple[Contender, Call]], dict[str, str]]:
    """Those that run the problem, and why others refuse it; who is absent, or need not be asked, is in neither."""
    running: dict[str, tuple[Contender, Call]] = {}
    refused: dict[str, str] = {}
    for peer in chosen_peers(PEERS):
        if peer.why_absent() is not None or peer.why_not(problem) is not None:
            continue
        try:
            with peer.within():
                call = peer.call(problem, tensors)
                call()
                lab.wait()
        except Exception as error:  # noqa: BLE001 - others' code: whatever it raises is about itself
            refused[peer.name] = reason_of(error)[:120]
        else:
            running[peer.name] = peer, call
    return running, refused


def _difference(problem: Problem, ours: Mapping[str, Any], peers: Mapping[str, tuple[Contender, Call]]) -> float | None:
    """From the first peer that ran."""
    for peer, call in peers.values():
        with peer.within():
            return difference(ours, named_outputs(problem, call()))
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, print the table. Returns how many rows failed."""
    options = _parser().parse_args(arguments)
    targets = parse_targets(options.target)
    wanted_problems = [row.problem for row in chosen_rows(options)] if options.rows else list(problems(options))
    options.out.mkdir(parents=True, exist_ok=True)
    lab, start = open_lab("cuda"), time.monotonic()
    look = look_up(lab.spec, options.db)
    built = build_all(with_forwards(wanted_problems), look)
    print(f"{lab.environment()} {versions(torch)}; {built} look-ups, built in {time.monotonic() - start:.0f} s")
    log = options.out / "rows.jsonl"
    failed = 0
    for number, problem in enumerate(wanted_problems, 1):
        if time.monotonic() - start > options.limit:
            print(f"the time is up before row {number} of {len(wanted_problems)}; run again to go on", flush=True)
            break
        if not is_known(log, look(problem)):
            failed += not _measure(lab, problem, options.db, log, f"{number}/{len(wanted_problems)}")
    write(options.out, {**lab.environment(), **versions(torch)}, wanted_problems, log, targets)
    return failed


def _measure(lab: TorchLab, problem: Problem, db: str | None, log: Path, number: str) -> bool:
    start = time.monotonic()
    try:
        record = compare(lab, problem, db)
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
    folder: Path,
    environment: Mapping[str, str],
    wanted_problems: Sequence[Problem],
    log: Path,
    targets: Mapping[str, float],
) -> None:
    """OUT/peers.json and OUT/peers.md, with the newest record of each problem; prints the table."""
    newest = {json.dumps(record["problem"]): record for record in records_in(log)}
    keys = [json.dumps(problem.to_json()) for problem in wanted_problems]
    records = [newest[key] for key in keys if key in newest]
    (folder / "peers.json").write_text(
        json.dumps({"environment": dict(environment), "rows": records}, indent=1), encoding="utf-8"
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
