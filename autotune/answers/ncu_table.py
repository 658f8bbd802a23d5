"""What Nsight Compute prints as comma-separated values, read: kernels and their metrics.

Both of its pages are taken: `raw`, with a column a metric and a line of units below the heading, and `details`, with a
line a metric. What a profiled program and ncu print before the table is passed over.
"""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.core.errors import UsageError
from autotune.core.words import format_bytes, printable

MARK = "==AUTOTUNE== "
"""Begins the line that tells, as JSON, what was profiled: `autotune profile` writes it before ncu's table."""

_LARGEST = 64 * 2**20

FIGURES: Mapping[str, tuple[str, ...]] = {
    "time": ("gpu__time_duration.sum", "Duration"),
    "SM throughput": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput"),
    "memory throughput": (
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "Memory Throughput",
    ),
    "DRAM throughput": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput",
    ),
    "DRAM bytes": ("dram__bytes.sum", "dram__bytes_read.sum"),
    "tensor pipe": (
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    "achieved occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
    "L1 hits": ("l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate"),
    "L2 hits": ("lts__t_sector_hit_rate.pct", "L2 Hit Rate"),
    "registers": ("launch__registers_per_thread", "Registers Per Thread"),
    "waves": ("launch__waves_per_multiprocessor", "Waves Per SM"),
}  # fmt: skip
"""Figures that are shown first: the metrics that hold each, by their names on either page, the first that is there."""


@dataclass(frozen=True)
class Metric:
    """A value as ncu printed it, its unit, and the number that it is; None where it is none (`n/a`)."""

    text: str
    unit: str
    number: float | None

    def __str__(self) -> str:
        """For people: times in µs, bytes with their usual units."""
        if self.number is None:
            return self.text
        if self.unit in {"ns", "nsecond"}:
            return f"{self.number / 1e3:.4g} µs"
        if self.unit == "byte":
            return format_bytes(self.number)
        number = f"{self.number:.4g}" if self.number < 1e6 else f"{self.number:.3e}"
        return number if self.unit in {"", "register/thread"} else f"{number} {self.unit}"


@dataclass(frozen=True)
class ProfiledKernel:
    """One launch as ncu counted it, its metrics by ncu's names."""

    name: str
    metrics: Mapping[str, Metric]

    def figures(self) -> dict[str, Metric]:
        """`FIGURES`, those that are there."""
        found = {}
        for figure, names in FIGURES.items():
            for name in names:
                if name in self.metrics:
                    found[figure] = self.metrics[name]
                    break
        return found


@dataclass(frozen=True)
class Profile:
    """A file's kernels in the order of their launches; `about`: what `autotune profile` says it is of, else empty."""

    kernels: tuple[ProfiledKernel, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


def read_profile(path: Path) -> Profile:
    """A file that `autotune profile`, or `ncu --csv`, wrote.

    Raises:
        UsageError: it cannot be read, or has no table of ncu's.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is larger than {_LARGEST >> 20} MiB: no table of ncu's")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    return parse_profile(text, str(path))


def parse_profile(text: str, where: str) -> Profile:
    """Raises UsageError where `text` has no table of ncu's; `where` names it."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.lstrip('"').startswith('ID"')), None)
    if start is None:
        said = next((line for line in lines if "==ERROR==" in line), "")
        raise UsageError(f"{where} has no table of ncu's (`ncu --csv`, or `autotune profile`){said and f': {said}'}")
    rows = list(csv.reader(lines[start:]))
    heading = [printable(name) for name in rows[0]]
    if "Kernel Name" not in heading:
        raise UsageError(f'{where}: ncu\'s table has no column "Kernel Name"')
    whole = [dict(zip(heading, map(printable, row), strict=True)) for row in rows[1:] if len(row) == len(heading)]
    kernels = _details(whole) if "Metric Name" in heading else _raw(whole)
    if not kernels:
        raise UsageError(f"{where}: ncu's table has no kernel in it")
    return Profile(tuple(kernels), _about(lines[:start]))


def _about(lines: list[str]) -> Mapping[str, Any]:
    for line in lines:
        if line.startswith(MARK):
            try:
                found = json.loads(line.removeprefix(MARK))
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return {}


def _raw(rows: list[dict[str, str]]) -> list[ProfiledKernel]:
    units = rows[0] if rows and not rows[0]["ID"].strip().isdigit() else {}
    found = []
    for row in rows:
        if row["ID"].strip().isdigit():
            metrics = {name: _metric(value, units.get(name, "")) for name, value in row.items() if _is_metric(name)}
            found.append(ProfiledKernel(row["Kernel Name"], metrics))
    return found


def _details(rows: list[dict[str, str]]) -> list[ProfiledKernel]:
    found: dict[str, tuple[str, dict[str, Metric]]] = {}
    for row in rows:
        if row["ID"].strip().isdigit() and row["Metric Name"]:
            _, metrics = found.setdefault(row["ID"], (row["Kernel Name"], {}))
            metrics[row["Metric Name"]] = _metric(row.get("Metric Value", ""), row.get("Metric Unit", ""))
    return [ProfiledKernel(name, metrics) for name, metrics in found.values()]


def _is_metric(name: str) -> bool:
    return "__" in name


def _metric(text: str, unit: str) -> Metric:
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return Metric(text, unit, None)
    return Metric(text, unit, number if math.isfinite(number) else None)
