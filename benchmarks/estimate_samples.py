"""Measured candidates with what `autotune.estimate.model` reads, as JSON lines; how well estimates rank them."""

import gzip
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autotune.devices.gpus import gpu
from autotune.estimate.counts import Counts
from autotune.estimate.model import Estimate, predict
from autotune.measurement import KernelResources
from autotune.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, Step, Zero
from autotune.values import Value

Group = tuple[str, str, str]
"""Op, family and dtype."""


@dataclass(frozen=True)
class Sample:
    """One candidate: its measured time, and plan, resources and counts."""

    device: str
    group: Group
    T: int
    config: dict[str, Value]
    ms: float
    plan: LaunchPlan
    resources: tuple[KernelResources, ...]
    counts: tuple[Counts, ...]

    def estimate(self) -> Estimate:
        """By the model."""
        return predict(self.plan, self.resources, self.counts, gpu(self.device))

    def to_json(self) -> dict[str, Any]:
        """Plain data; of the plan only what an estimate needs."""
        return {
            "device": self.device, "group": self.group, "T": self.T, "config": self.config, "ms": self.ms,
            "buffers": {buffer.name: buffer.nbytes for buffer in self.plan.buffers},
            "steps": [_step(step) for step in self.plan.steps],
            "resources": [list(asdict(resources).values()) for resources in self.resources],
            "counts": [_rounded(counts) for counts in self.counts],
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Sample":
        """Read what `to_json` wrote."""
        buffers = tuple(Buffer(name, "fp32", nbytes // 4, "input") for name, nbytes in data["buffers"].items())
        op, family, dtype = data["group"]
        return cls(
            data["device"], (op, family, dtype), data["T"], data["config"], data["ms"],
            LaunchPlan(buffers, tuple(map(_parse, data["steps"]))),
            tuple(KernelResources(*values) for values in data["resources"]),
            tuple(Counts(**counts) for counts in data["counts"]),
        )  # fmt: skip


def _step(step: Step) -> list[Any]:
    if isinstance(step, Zero):
        return [step.buffer]
    storages = dict.fromkeys(arg.storage for arg in step.args if not isinstance(arg, ScalarArg))
    return [step.kernel, step.grid, step.block, step.smem, list(storages)]


def _parse(data: list[Any]) -> Step:
    if len(data) == 1:
        return Zero(data[0])
    kernel, grid, block, smem, storages = data
    args = tuple(PointerArg(name, name, 0, "fp32", "input") for name in storages)
    return Launch(kernel, tuple(grid), tuple(block), smem, args)


def _rounded(counts: Counts) -> dict[str, Any]:
    """Five digits."""
    return {name: float(f"{v:.5g}") if isinstance(v, float) else v for name, v in counts.to_json().items()}


def load_samples(path: Path) -> list[Sample]:
    """From a file of JSON lines, compressed if its name ends in `.gz`."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [Sample.from_json(json.loads(line)) for line in text.splitlines()]


def save_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Write them, one a line, compressed if the name ends in `.gz`."""
    text = "".join(json.dumps(sample.to_json(), separators=(",", ":")) + "\n" for sample in samples)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


@dataclass(frozen=True)
class Quality:
    """How well estimates of one group rank: over all problems, and within a problem (one T, averaged by number)."""

    group: Group
    n: int
    configurations: int
    overall: float
    within: float
    ratio: float  # median of estimate over measurement
    low: float  # its first decile
    high: float  # its last

    def row(self) -> str:
        """A line of a Markdown table."""
        op, family, dtype = self.group
        return (
            f"| {op} | {family} | {dtype} | {self.n} | {self.configurations} | {self.overall:.2f} | {self.within:.2f} "
            f"| {self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}) |"
        )


HEADER = (
    "| op | family | dtype | n | configurations | Spearman, all lengths | within a length | median ratio (deciles) |\n"
    "|---|---|---|---|---|---|---|---|"
)


def qualities(samples: Sequence[Sample]) -> list[Quality]:
    """One for each group, in order of name."""
    groups = sorted({sample.group for sample in samples})
    return [quality(group, [sample for sample in samples if sample.group == group]) for group in groups]


def quality(group: Group, samples: Sequence[Sample]) -> Quality:
    """Of one group's samples."""
    estimates = [sample.estimate().ms for sample in samples]
    measured = [sample.ms for sample in samples]
    ratios = [one / other for one, other in zip(estimates, measured, strict=True)]
    within = [
        (len(at), rank_correlation([estimates[i] for i in at], [measured[i] for i in at]))
        for at in _by_length(samples)
        if len(at) >= _FEWEST
    ]
    weight = sum(n for n, _ in within)
    return Quality(
        group, len(samples), len({json.dumps(sample.config, sort_keys=True) for sample in samples}),
        rank_correlation(estimates, measured),
        sum(n * rho for n, rho in within) / weight if weight else math.nan,
        median(ratios), float(np.quantile(ratios, 0.1)), float(np.quantile(ratios, 0.9)),
    )  # fmt: skip


_FEWEST = 6  # samples of one length whose ranks are compared


def _by_length(samples: Sequence[Sample]) -> list[list[int]]:
    lengths = sorted({sample.T for sample in samples})
    return [[i for i, sample in enumerate(samples) if sample.T == T] for T in lengths]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing theirs."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = np.sort(values)
    return [float(np.searchsorted(ordered, v) + np.searchsorted(ordered, v, side="right")) / 2.0 for v in values]
