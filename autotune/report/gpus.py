"""The table of known GPUs: `autotune list gpus`, and docs/gpus.md (`python -m autotune.report.gpus docs/gpus.md`)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.devices.gpus import LIMITS_SOURCE, gpus, source_of
from autotune.devices.rates import rates_of

COLUMNS = (
    "gpu", "arch", ">SMs", ">MHz", ">GB/s", ">fp32 TFLOP/s", ">tensor TFLOP/s", ">L2 MB", ">memory GB", ">smem KB/SM",
    ">smem KB/block", ">threads/SM", ">blocks/SM", "?source",
)  # fmt: skip
"""Of `rows`; marked as `autotune.report.table` has it."""

_TEXT = f"""# GPUs

What `--target` and `--device` take, with the published limits that constraints, occupancy and estimates use
(`autotune/devices/gpus.py`); `autotune list gpus` prints the same. Of a GPU that is present the limits are read off
the device. Tensor rates are dense fp16 with fp32 accumulation. Everywhere: 65,536 registers an SM, at most 255 a
thread, and at most 1024 threads a block. Shared memory, threads and blocks by compute capability are those of the
{LIMITS_SOURCE}.
What an SM does in a clock, and latencies: `autotune/devices/rates.py`, with its sources.

Written by `python -m autotune.report.gpus docs/gpus.md`.
"""


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
    names = [column.lstrip(">?") for column in COLUMNS]
    lines = [names, ["---"] * len(names), *([str(cell) for cell in row] for row in rows())]
    return _TEXT + "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
