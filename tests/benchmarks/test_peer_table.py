"""Ratios and verdicts of the comparison with peers, from records as `benchmarks.against_peers` writes them."""

from typing import Any

import pytest

from autotune.ops.registry import get_op
from benchmarks.peer_table import FLASH4_RECORDED, parse_targets, passes, ratios, summary, table

PROBLEM = get_op("backward").problem(B=4, NH=32, T=4096, HS=64)
FASTEST = {"fastest": 1.0}


def record(difference: float | None = 1e-3, **ms: float) -> dict[str, Any]:
    return {
        "problem": PROBLEM.to_json(), "candidate": "flash_mma A=1", "flops": 687194767360.0, "ms": ms,
        "difference": difference,
    }  # fmt: skip


def test_ratios_are_peers_over_ours_and_flash4_follows_from_the_recorded_one() -> None:
    found = ratios(record(autotune=1.5, flash=3.0, cudnn=1.8))
    assert found["flash"] == 2.0
    assert found["cudnn"] == pytest.approx(1.2)
    # Recorded on that row: flash4 1.40856 ms, cuDNN 1.78054 ms.
    assert found[FLASH4_RECORDED] == pytest.approx(1.2 * 1.40856 / 1.78054)
    assert FLASH4_RECORDED not in ratios(record(autotune=1.5, flash=3.0))
    timed = ratios(record(autotune=1.5, cudnn=1.8, flash4=1.2))
    assert timed["flash4"] == pytest.approx(0.8)
    assert FLASH4_RECORDED not in timed


@pytest.mark.parametrize(
    ("ms", "difference", "targets", "passed"),
    [
        ({"autotune": 1.0, "flash": 2.0, "cudnn": 1.0}, 1e-3, FASTEST, True),
        ({"autotune": 1.0, "flash": 2.0, "cudnn": 0.99}, 1e-3, FASTEST, False),
        ({"autotune": 1.0, "flash": 2.0, "cudnn": 0.99}, 1e-3, {"cudnn": 0.9, "flash": 2.0}, True),
        ({"autotune": 1.0, "flash": 2.0, "cudnn": 0.99}, 1e-3, {"cudnn": 0.9, "flash": 2.1}, False),
        ({"autotune": 1.0, "flash": 2.0}, 1e-3, {"cudnn": 0.9, "flash": 2.0}, True),  # cuDNN refused the row
        ({"autotune": 1.0, "flash": 2.0}, 1e-2, FASTEST, False),
        ({"autotune": 1.0, "flash": 2.0}, float("nan"), FASTEST, False),
        ({"autotune": 1.0, "flash": 2.0}, None, FASTEST, False),
        ({"autotune": 1.0}, 1e-3, FASTEST, False),
    ],
)
def test_a_row_passes(ms: dict[str, float], difference: float, targets: dict[str, float], passed: bool) -> None:
    assert passes(record(difference, **ms), targets) is passed


def test_targets_are_read() -> None:
    assert parse_targets("cudnn=0.9,flash=1") == {"cudnn": 0.9, "flash": 1.0}
    with pytest.raises(ValueError, match="--target 'flash9' is not one of fastest, flash, cudnn"):
        parse_targets("flash9=1")
    with pytest.raises(ValueError, match="could not convert"):
        parse_targets("flash=fast")


def test_the_table_has_times_ratios_and_verdicts() -> None:
    wrong = record(0.5, autotune=0.5, flash=1.0, cudnn=1.0)
    lines = table([record(autotune=1.0, flash=2.0, cudnn=1.25, math=9.0), wrong], FASTEST).splitlines()
    assert lines[0] == (
        "| op | dtype | HS | causal | T | B | NH | autotune | flash2 | cuDNN | math | / flash2 | / cuDNN | / math "
        "| / flash4 (recorded) | passes | family |"
    )
    assert lines[2] == (
        "| backward | fp16 | 64 | 1 | 4096 | 4 | 32 | 1.0000 (687) | 2.0000 (344) | 1.2500 (550) | 9.0000 (76) "
        "| 2.00 | 1.25 | 9.00 | 0.99 | yes | flash_mma |"
    )
    assert "| WRONG |" in lines[3]


def test_the_summary_counts_rows() -> None:
    records = [record(autotune=1.0, flash=2.0, cudnn=0.5), record(autotune=1.0, flash=2.0, cudnn=2.0)]
    lines = summary(records, FASTEST)
    assert lines[0] == "flash2: as fast or faster in 2 of 2 rows; geometric mean 2.000, least 2.000"
    assert lines[1] == "cuDNN: as fast or faster in 1 of 2 rows; geometric mean 1.000, least 0.500"
    assert "1 of 2 rows pass (fastest >= 1; outputs agree with a peer's)" in lines
