"""Errors of winners and of PyTorch's own kernels against float64, on the same inputs.

    python -m benchmarks.accuracy [--out accuracy]

For each output the largest absolute error and ||got - exact|| / ||exact||. Ours may be at most twice PyTorch's forward
and three times its gradients': flash's in 16 bits, efficient's in fp32 (cuDNN's is shown beside). Needs a GPU and the
extra `torch`. Exits with 1 if an output exceeds that.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from autotune.bench.exact import exact
from autotune.bench.measured import Error
from autotune.bench.ours import Ours, build_all, look_up, with_forwards
from autotune.bench.peers import chosen_peers
from autotune.bench.torch_lab import open_lab
from autotune.bench.torch_timing import Tensors
from autotune.core.problem import Problem
from autotune.devices.driver import cuda_driver
from autotune.ops.registry import get_op

BOUND = {"forward": 2.0, "backward": 3.0}
YARDSTICK = {"fp16": "flash", "bf16": "flash", "fp32": "efficient"}
BESIDE = {"fp16": ("cudnn",), "bf16": ("cudnn",), "fp32": ()}
HEAD_SIZES = {"fp16": (32, 64, 128, 256), "bf16": (64, 128), "fp32": (64, 128)}
SHAPES = ({"B": 2, "NH": 4, "T": 1024}, {"B": 1, "NH": 2, "T": 4096}, {"B": 1, "NH": 2, "T": 1000})
"""The last one divides no tile."""

Outputs = Mapping[str, torch.Tensor]
Compute = Callable[[Problem, Tensors], Outputs]


@dataclass(frozen=True)
class Comparison:
    """One output of one problem: our error, and PyTorch's by kernel."""

    problem: Problem
    candidate: str
    output: str
    ours: Error
    peers: Mapping[str, Error]

    @property
    def ratios(self) -> tuple[float, float]:
        """Ours over the yardstick's: largest and relative. NaN where the yardstick did not run."""
        peer = self.peers.get(YARDSTICK[self.problem.dtype])
        if peer is None:
            return math.nan, math.nan
        return self.ours.largest / peer.largest, self.ours.relative / peer.relative

    @property
    def passed(self) -> bool:
        """Whether both ratios are within the op's bound; NaN is not."""
        return all(ratio <= BOUND[self.problem.op] for ratio in self.ratios)


def problems() -> list[Problem]:
    """Both ops, every dtype and head size, both masks, several lengths."""
    return [
        get_op(op).problem(**shape, HS=HS, dtype=dtype, causal=causal)
        for op in ("forward", "backward") for dtype, sizes in HEAD_SIZES.items() for HS in sizes
        for causal in (True, False) for shape in SHAPES
    ]  # fmt: skip


def by_pytorch(name: str) -> Compute:
    """One of PyTorch's kernels."""

    def compute(problem: Problem, tensors: Tensors) -> Outputs:
        (peer,) = chosen_peers(name)
        with peer.within():
            return peer.results(problem, tensors)

    return compute


def compare(problem: Problem, ours: Callable[[Problem, Tensors], tuple[str, Outputs]]) -> list[Comparison]:
    """Every output of a problem. `ours` gives the candidate's name and the outputs."""
    tensors = Tensors.of(torch, problem, seed=1)
    right = exact(torch, problem, tensors, math.inf)
    candidate, got = ours(problem, tensors)
    own = right.errors(got)
    peers: dict[str, dict[str, Error]] = {name: {} for name in own}
    for peer in (YARDSTICK[problem.dtype], *BESIDE[problem.dtype]):
        try:
            results = by_pytorch(peer)(problem, tensors)
        except RuntimeError:
            continue  # the kernel refuses the problem; the verdict says so if it is the yardstick
        for name, error in right.errors(results).items():
            peers[name][peer] = error
    return [Comparison(problem, candidate, name, own[name], peers[name]) for name in own]


def table(found: Sequence[Comparison]) -> str:
    """A line an output: errors (largest, relative) and ratios."""
    lines = [
        "| op | dtype | HS | causal | T | family | output | ours | yardstick | cuDNN | largest | relative | ok |",
        "|" + "---|" * 13,
    ]
    for one in found:
        p = one.problem
        largest, relative = one.ratios
        cells = [
            p.op, p.dtype, p["HS"], int(bool(p["causal"])), p["T"], one.candidate.partition(" ")[0], one.output,
            _text(one.ours), _text(one.peers.get(YARDSTICK[p.dtype])), _text(one.peers.get("cudnn")),
            f"{largest:.2f}", f"{relative:.2f}", "yes" if one.passed else "NO",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _text(found: Error | None) -> str:
    return "" if found is None else f"{found.largest:.2e}, {found.relative:.2e}"


def summary(found: Sequence[Comparison]) -> str:
    """The largest ratios by op and dtype, and how many outputs are within their bounds."""
    lines = []
    for op, dtype in dict.fromkeys((one.problem.op, one.problem.dtype) for one in found):
        ratios = [one.ratios for one in found if (one.problem.op, one.problem.dtype) == (op, dtype)]
        worst = max(ratio[0] for ratio in ratios), max(ratio[1] for ratio in ratios)
        lines.append(
            f"{op} {dtype}: at most {worst[0]:.2f} times {YARDSTICK[dtype]}'s largest error, {worst[1]:.2f} times its "
            f"relative one (bound {BOUND[op]:g}), {len(ratios)} outputs"
        )
    passed = sum(one.passed for one in found)
    return "\n".join([*lines, f"{passed} of {len(found)} outputs within their bounds"])


def by_winner(db: str | None) -> Callable[[Problem, Tensors], tuple[str, Outputs]]:
    """The best configuration known for each problem, on the GPU."""
    lab = open_lab("cuda")
    look = look_up(lab.spec, db)
    build_all(with_forwards(problems()), look)
    ours = Ours(torch, look, cuda_driver(), lab.index)

    def compute(problem: Problem, tensors: Tensors) -> tuple[str, Outputs]:
        results = ours.results(problem, tensors)
        torch.cuda.synchronize()
        return look(problem).candidate.key, results

    return compute


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write OUT/accuracy.json and OUT/accuracy.md, print. Returns how many outputs exceed their bounds."""
    parser = argparse.ArgumentParser(description="errors of winners and of PyTorch's kernels against float64")
    parser.add_argument("--out", type=Path, default=Path("accuracy"))
    parser.add_argument("--db", default=None)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    start, ours = time.monotonic(), by_winner(options.db)
    found: list[Comparison] = []
    failed = 0
    for problem in problems():
        try:
            found += compare(problem, ours)
        except Exception as failure:  # noqa: BLE001 - the other problems are still to be compared
            failed += 1
            print(f"FAILED {problem.key}: {type(failure).__name__}: {str(failure)[:300]}", flush=True)
    text = f"{table(found)}\n\n{summary(found)}\n{failed} problems failed; {time.monotonic() - start:.0f} s\n"
    (options.out / "accuracy.md").write_text(text, encoding="utf-8")
    (options.out / "accuracy.json").write_text(json.dumps([_json(one) for one in found], indent=1), encoding="utf-8")
    print(text)
    return failed + sum(not one.passed for one in found)


def _json(one: Comparison) -> dict[str, Any]:
    return {
        "problem": one.problem.to_json(), "candidate": one.candidate, "output": one.output, "ours": asdict(one.ours),
        "peers": {name: asdict(peer) for name, peer in one.peers.items()}, "ratios": one.ratios, "passed": one.passed,
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
