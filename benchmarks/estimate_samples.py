"""Measured candidates with what `autotune.estimate.model` reads, as JSON lines; how well estimates rank them.

What is fitted is fitted to one half of the configurations (`is_held_out` says which) and judged by the other.
"""

import gzip
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autotune.core.measurement import KernelResources
from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, Step, Zero
from autotune.core.values import Value
from autotune.estimate.counts import Counts
from autotune.estimate.model import Estimate, predict
from autotune.estimate.schedule import Schedule
from autotune.gpus.known import gpu

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
    schedules: tuple[Schedule, ...]

    def estimate(self) -> Estimate:
        """By the model."""
        return predict(self.plan, self.resources, self.counts, self.schedules, gpu(self.device))

    def to_json(self) -> dict[str, Any]:
        """Plain data; of the plan only what an estimate needs."""
        return {
            "device": self.device, "group": self.group, "T": self.T, "config": self.config, "ms": self.ms,
            "buffers": {buffer.name: buffer.nbytes for buffer in self.plan.buffers},
            "steps": [_step(step) for step in self.plan.steps],
            "resources": [list(asdict(resources).values()) for resources in self.resources],
            "counts": [_rounded(counts.to_json()) for counts in self.counts],
            "schedules": [_rounded(schedule.to_json()) for schedule in self.schedules],
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
            tuple(map(Schedule.from_json, data["schedules"])),
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


def _rounded(data: Any) -> Any:
    """Five digits."""
    if isinstance(data, dict):
        return {name: _rounded(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value) for value in data]
    return float(f"{data:.5g}") if isinstance(data, float) else data


def load_samples(path: Path) -> list[Sample]:
    """From a file of JSON lines, compressed if its name ends in `.gz`."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [Sample.from_json(json.loads(line)) for line in text.splitlines()]


def save_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Write them, one a line, compressed if the name ends in `.gz`."""
    text = "".join(json.dumps(sample.to_json(), separators=(",", ":")) + "\n" for sample in samples)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def is_held_out(sample: Sample) -> bool:
    """Whether nothing may be fitted to it: every second configuration, by a hash, at all lengths alike."""
    text = json.dumps([sample.group, sample.config], sort_keys=True)
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 1


@dataclass(frozen=True)
class Quality:
    """How well estimates rank the candidates of one group at one length, and of its half that nothing was fitted to."""

    group: Group
    T: int
    n: int
    correlation: float  # Spearman's
    held_out: int
    of_held_out: float
    ratio: float  # median of estimate over measurement
    low: float  # its first decile
    high: float  # its last

    def row(self) -> str:
        """A line of a Markdown table."""
        op, family, dtype = self.group
        return (
            f"| {op} | {family} | {dtype} | {self.T} | {self.n} | {self.correlation:.2f} "
            f"| {self.of_held_out:.2f} (n={self.held_out}) | {self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}) |"
        )


HEADER = (
    "| op | family | dtype | T | configurations | Spearman | held-out half | median ratio (deciles) |\n"
    "|---|---|---|---|---|---|---|---|"
)


def qualities(samples: Sequence[Sample]) -> list[Quality]:
    """One for each group and length that has enough samples, in order."""
    groups: dict[tuple[Group, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group, sample.T].append(sample)
    return [quality(members) for _, members in sorted(groups.items()) if len(members) >= _FEWEST]


def quality(samples: Sequence[Sample]) -> Quality:
    """Of one group's samples at one length."""
    pairs = [(sample.estimate().ms, sample.ms) for sample in samples]
    held_out = [pair for pair, sample in zip(pairs, samples, strict=True) if is_held_out(sample)]
    ratios = [estimate / measured for estimate, measured in pairs]
    return Quality(
        samples[0].group, samples[0].T, len(samples), rank_correlation(*zip(*pairs, strict=True)), len(held_out),
        rank_correlation(*zip(*held_out, strict=True)) if len(held_out) >= _FEWEST else math.nan,
        median(ratios), float(np.quantile(ratios, 0.1)), float(np.quantile(ratios, 0.9)),
    )  # fmt: skip


_FEWEST = 6  # samples whose ranks are compared


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing theirs."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = np.sort(values)
    return [float(np.searchsorted(ordered, v) + np.searchsorted(ordered, v, side="right")) / 2.0 for v in values]
