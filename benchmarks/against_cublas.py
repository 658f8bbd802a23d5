"""The op `matmul` beside cuBLAS, at the sizes of the ladder: searched within a given time, then timed interleaved.

    python -m benchmarks.against_cublas --total 120 --out products
    CUDA_VISIBLE_DEVICES=1 python -m benchmarks.against_cublas --shard 1/2 --total 60 --out products1

Needs the extras `gpu` and `torch`. Scores (1024x1024x64), outputs and gradients (1024x64x1024), 48 and 96 matrices,
fp16, bf16, fp32, and fp32 with tf32 factors against cuBLAS with tf32. Both work on the same tensors; each of three
rounds times one, then the other, and the middle round counts. OUT/products.json has everything, OUT/products.md the
table.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.dtypes import torch_dtype
from autotune.core.errors import AutotuneError, DeviceMissing
from autotune.core.problem import Problem
from autotune.devices.factory import CudaOpener
from autotune.gpus.present import present_gpu
from autotune.ladder.shared_worker import SharedWorker
from autotune.ladder.warm import warm
from autotune.ops.registry import get_op
from autotune.store import Store, open_store
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.choose import choose_subject
from autotune.tuning.events import silent
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_with

if TYPE_CHECKING:
    from autotune.answers.best import Best
    from autotune.bench.ours import Ours

SHAPES: tuple[dict[str, Any], ...] = (
    {"M": 1024, "N": 1024, "K": 64, "layout": "nt"},
    {"M": 1024, "N": 64, "K": 1024, "layout": "nn"},
    {"M": 1024, "N": 64, "K": 1024, "layout": "tn"},
)
KINDS: tuple[dict[str, Any], ...] = (
    {"dtype": "fp16"},
    {"dtype": "bf16"},
    {"dtype": "fp32"},
    {"dtype": "fp32", "arithmetic": "tf32"},
)
BATCHES = (4, 8)
TARGET = 0.85
_LEAST, _GRACE_S, _ROUNDS = 4, 0.0, 3


def problems(shard: tuple[int, int] = (0, 1)) -> list[Problem]:
    """All of them, or a share. Both batch sizes of a product follow one another: the second begins with the first."""
    op = get_op("matmul")
    pairs = [(shape, kind) for kind in KINDS for shape in SHAPES]
    mine = [pair for at, pair in enumerate(pairs) if at % shard[1] == shard[0]]
    return [op.problem(B=B, NH=12, **shape, **kind) for shape, kind in mine for B in BATCHES]


def search_all(wanted: Sequence[Problem], store: Store, total_s: float, trials: int) -> None:
    """Search for each in turn; what is left of the time is shared out among those that are left."""
    opener, start = CudaOpener(), time.monotonic()
    spec = present_gpu()
    if spec is None:
        raise DeviceMissing("cuBLAS is compared on a GPU; there is none")
    subject, options = choose_subject("matmul"), Options(trials=trials, final=False)
    worker = SharedWorker(opener)
    try:
        worker.start()
        with warm([(subject, problem) for problem in wanted], spec, options):
            for at, problem in enumerate(wanted):
                left = max(1.0, start + total_s - time.monotonic()) / (len(wanted) - at)
                clock = Clock(Budget(trials, left, least=_LEAST, grace_s=_GRACE_S))
                found = search_with(worker, clock, subject, problem, options, store, silent)
                best = "nothing" if found.best is None else f"{found.best.ms:.4f} ms {found.best.candidate}"
                print(f"{time.monotonic() - start:5.0f} s {problem.key}: {found.trials} trials, {best}", flush=True)
    finally:
        worker.end()


def compare(ours: "Ours", found: "Best", problem: Problem) -> dict[str, Any]:
    """One row: our median and cuBLAS's on the same tensors, and how far the results are apart."""
    import torch

    from autotune.bench.exact import difference
    from autotune.bench.ours import empty_outputs
    from autotune.bench.torch_timing import time_call
    from autotune.devices.protocol import TimingBudget

    torch.manual_seed(0)
    tensors = _inputs(torch, problem)
    a, b = (tensor.reshape(-1, *tensor.shape[2:]) for tensor in tensors.values())
    theirs = torch.empty((a.shape[0], a.shape[1], b.shape[2]), dtype=a.dtype, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = problem["arithmetic"] == "tf32"
    budget = TimingBudget(min_repeats=10, max_repeats=50, max_seconds=0.1)
    kernel, outputs = ours.kernel(problem), empty_outputs(torch, problem)
    rounds: dict[str, list[float]] = {"ours": [], "cuBLAS": []}
    for _ in range(_ROUNDS):
        rounds["ours"].append(time_call(torch, lambda: kernel(**tensors, **outputs), budget).median_ms)
        rounds["cuBLAS"].append(time_call(torch, lambda: torch.bmm(a, b, out=theirs), budget).median_ms)
    apart = difference(outputs, {"c": theirs.view(outputs["c"].shape)})
    ms = {name: statistics.median(times) for name, times in rounds.items()}
    return {
        "problem": problem.to_json(), "candidate": found.candidate.key, "answer": found.answer, "ms": ms,
        "rounds": rounds, "speed": ms["cuBLAS"] / ms["ours"], "difference": apart, "torch": torch.__version__,
    }  # fmt: skip


def compare_all(wanted: Sequence[Problem], db: str) -> tuple[list[dict[str, Any]], int]:
    """A row for each product that both compute, and how many have none."""
    from autotune.bench.ours import Ours, look_up
    from autotune.bench.torch_lab import open_lab
    from autotune.devices.driver import cuda_driver

    lab, rows = open_lab("cuda"), []
    look = look_up(lab.spec, db)
    ours = Ours(lab.torch, look, cuda_driver(), lab.index)
    for problem in wanted:
        try:
            rows.append(compare(ours, look(problem), problem))
        except (AutotuneError, RuntimeError) as error:
            print(f"no comparison for {problem.key}: {error}", flush=True)
    return rows, len(wanted) - len(rows)


def _inputs(torch: Any, problem: Problem) -> dict[str, Any]:
    dtype = torch_dtype(torch, problem.dtype)
    named = {}
    for tensor in get_op("matmul").tensors(problem):
        if tensor.role == "input":
            storage = torch.randn(tensor.extent, dtype=dtype, device="cuda")
            named[tensor.name] = storage.as_strided(tensor.shape, tensor.strides, tensor.offset)
    return named


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Milliseconds, GB/s and our speed as a multiple of cuBLAS's."""
    lines = ["| product | matrices | dtype | ours, ms | cuBLAS, ms | GB/s | speed against cuBLAS | configuration |"]
    lines.append("|" + "---|" * 8)
    for row in rows:
        fields = dict(row["problem"])
        problem = get_op(fields.pop("op")).problem(**fields)
        dtype = "tf32" if problem["arithmetic"] == "tf32" else problem.dtype
        size = f"{problem['M']}x{problem['N']}x{problem['K']} {problem['layout']}"
        gbs = get_op("matmul").nbytes(problem) / row["ms"]["ours"] / 1e6
        count = problem.integer("B") * problem.integer("NH")
        verdict = "" if row["speed"] >= TARGET else f" (under {TARGET})"
        lines.append(
            f"| {size} | {count} | {dtype} | {row['ms']['ours']:.4f} | {row['ms']['cuBLAS']:.4f} | {gbs:.0f} | "
            f"{row['speed']:.2f}{verdict} | {row['candidate']} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Search, compare, write, print. Returns how many rows have no comparison."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    part, parts = (int(text) for text in options.shard.split("/"))
    wanted = problems((part, parts))
    db = options.db or str(options.out / "products.db")
    if options.total > 0:
        with open_store(db) as store:
            search_all(wanted, store, options.total, options.trials)
    rows, failed = compare_all(wanted, db)
    (options.out / "products.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    (options.out / "products.md").write_text(table(rows) + "\n", encoding="utf-8")
    print(table(rows))
    return failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total", type=float, default=120.0, help="seconds of searching; 0: what the database has")
    parser.add_argument("--trials", type=int, default=40, help="most candidates a product")
    parser.add_argument("--shard", default="0/1", help="this part of all products")
    parser.add_argument("--db", default=None)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
