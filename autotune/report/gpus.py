"""The table of known GPUs: `autotune list gpus`, and docs/gpus.md (`python -m autotune.report.gpus docs/gpus.md`)."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.gpus.known import LIMITS_SOURCE, gpus, source_of
from autotune.gpus.rates import UNCOMPARED, rates_of
from autotune.gpus.sources import PUBLISHED

COLUMNS = (
    "gpu", "arch", ">SMs", ">MHz", ">GB/s", ">fp32 TFLOP/s", ">tensor TFLOP/s", ">L2 MB", "?>memory GB", "?>smem KB/SM",
    "?>smem KB/block", "?>threads/SM", "?>blocks/SM", "?source",
)  # fmt: skip
"""Of `rows`; marked as `autotune.report.table` has it."""

_TEXT = f"""# GPUs

What `--target` and `--device` take, with the published limits that constraints, occupancy and estimates use
(`autotune/gpus/known.py`); `autotune list gpus` prints the same. Of a GPU that is present the limits are read off
the device. Tensor rates are dense fp16 with fp32 accumulation. Everywhere: 65,536 registers an SM, at most 255 a
thread, and at most 1024 threads a block. Shared memory, threads and blocks by compute capability are those of the
{LIMITS_SOURCE}.
What an SM does in a clock, and latencies: `autotune/gpus/rates.py`, with its sources.

Written by `python -m autotune.report.gpus docs/gpus.md`.
"""

_CHECKED = (
    "gpu", "fp32 cores", "tensor FLOP/clock/SM", "tensor MHz", "bus bits", "Gbit/s a pin", "which number is whose",
    "not compared",
)  # fmt: skip

_CHECKS = f"""## How far these figures were checked

Each row satisfies these identities within the rounding of what is printed (`tests/gpus/test_gpu_figures.py`): fp32 rate
= 2 · cores · clock; tensor rate = SMs · FLOP a clock and SM · tensor clock; GB/s = bus bits / 8 · Gbit/s a pin. Figures
were also compared with public quotations that name the document, or with public reports of drivers; the documents
themselves were not at hand. *Not compared* names figures that no such quotation was found of: they rest on the
identities and on collections of specifications.

Of the rates in `autotune/gpus/rates.py` these were not compared:

{"".join(f"- {figure}{chr(10)}" for figure in UNCOMPARED)}"""


def rows() -> Iterator[tuple[object, ...]]:
    """One row a model, oldest first."""
    for spec in gpus():
        yield (
            spec.name, spec.arch, spec.sm_count, spec.clock_mhz, f"{spec.bandwidth_gbs:g}", f"{spec.fp32_tflops:g}",
            f"{spec.tensor_tflops:g}", f"{spec.l2_bytes / 2**20:g}", spec.memory_bytes // 2**30,
            spec.shared_memory_per_sm // 1024, spec.max_shared_memory // 1024, spec.max_threads_per_sm,
            spec.max_blocks_per_sm, source_of(spec),
        )  # fmt: skip


def to_json() -> list[dict[str, Any]]:
    """All limits and rates of all models, with their sources."""
    return [
        {**spec.to_json(), "rates": vars(rates_of(spec)), "source": source_of(spec), "limits_source": LIMITS_SOURCE}
        for spec in gpus()
    ]


def page() -> str:
    """docs/gpus.md."""
    limits = _table([column.lstrip(">?") for column in COLUMNS], rows())
    checks = _table(_CHECKED, checked_rows())
    return f"{_TEXT}\n{limits}\n{_CHECKS}\n{checks}"


def checked_rows() -> Iterator[tuple[object, ...]]:
    """One row a model: what its figures follow from, and what is to be said of its sources."""
    for spec in gpus():
        published = PUBLISHED[spec.name]
        yield (
            spec.name, published.fp32_cores, published.tensor_flops, published.tensor_mhz, published.bus_bits,
            f"{published.pin_gbits:g}", published.note, published.uncompared,
        )  # fmt: skip


def _table(names: Sequence[str], cells: Iterable[Sequence[object]]) -> str:
    lines = [names, ["---"] * len(names), *([str(cell) for cell in row] for row in cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
