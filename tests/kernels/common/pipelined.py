"""The pipelined product of pipelined.cu: its launch, its operands, its result."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.plan import TensorMapArg

CODE = Path(__file__).with_name("pipelined.cu").read_text(encoding="utf-8")
COLUMNS, STAGES = 96, 3
THREADS = 384
SMEM = STAGES * 128 * (128 + COLUMNS) + 2 * 64 * 32 * 4 + 16 * STAGES


def operands(rows: int, depth: int) -> dict[str, NDArray[Any]]:
    """A, B, the number of steps, an empty C, in the order of the kernel's pointers."""
    rng = np.random.default_rng(depth)
    a, b = (rng.standard_normal((n, depth)).astype(np.float16) for n in (rows, COLUMNS))
    sizes = np.array([-(-depth // 64)], np.int32)
    return {"a": a, "b": b, "sizes": sizes, "c": np.full((rows, COLUMNS), np.nan, np.float32)}


def maps(rows: int, depth: int) -> tuple[TensorMapArg, ...]:
    """Of A, B and C."""
    return (
        TensorMapArg("a_map", "a", 0, "fp16", (depth, rows), (1, depth), (64, 128), 128, "input"),
        TensorMapArg("b_map", "b", 0, "fp16", (depth, COLUMNS), (1, depth), (64, COLUMNS), 128, "input"),
        TensorMapArg("c_map", "c", 0, "fp32", (COLUMNS, rows), (1, COLUMNS), (32, 64), 128, "output"),
    )
