"""The products that are compared with cuBLAS, and how the comparison is shown."""

from collections import Counter
from typing import Any

import pytest

from benchmarks.against_cublas import problems, table


def test_sizes_and_types_of_the_ladder() -> None:
    found = problems()
    assert len(set(found)) == 3 * 4 * 2
    assert Counter((p.dtype, p["arithmetic"]) for p in found) == {
        ("fp16", "full"): 6, ("bf16", "full"): 6, ("fp32", "full"): 6, ("fp32", "tf32"): 6,
    }  # fmt: skip
    assert {p.integer("B") * p.integer("NH") for p in found} == {48, 96}
    assert {p["mask"] for p in found} == {"none"}  # cuBLAS has none


def test_shards_are_everything_and_keep_batches_together() -> None:
    shards = [problems((part, 2)) for part in range(2)]
    assert sorted(map(str, shards[0] + shards[1])) == sorted(map(str, problems()))
    for shard in shards:
        assert all(a.replace(B=8) == b for a, b in zip(shard[::2], shard[1::2], strict=True))


def test_the_table_says_what_misses_the_target() -> None:
    problem = problems()[0]
    row: dict[str, Any] = {
        "problem": problem.to_json(), "ms": {"ours": 0.1, "cuBLAS": 0.08}, "speed": 0.8, "candidate": "mma BLOCK_M=64",
    }  # fmt: skip
    slow, fast = table([row, {**row, "speed": 0.85}]).splitlines()[2:]
    nbytes = 48 * 2 * (1024 * 1024 + 2 * 1024 * 64)
    assert slow == (
        f"| 1024x1024x64 nt | 48 | fp16 | 0.1000 | 0.0800 | {nbytes / 0.1 / 1e6:.0f} | 0.80 (under 0.85) | "
        "mma BLOCK_M=64 |"
    )
    assert "under" not in fast


@pytest.mark.parametrize("arithmetic", ["full", "tf32"])
def test_tf32_is_called_that(arithmetic: str) -> None:
    problem = next(p for p in problems() if p.dtype == "fp32" and p["arithmetic"] == arithmetic)
    row: dict[str, Any] = {
        "problem": problem.to_json(), "ms": {"ours": 1.0, "cuBLAS": 1.0}, "speed": 1.0, "candidate": "simt",
    }  # fmt: skip
    assert f"| {'tf32' if arithmetic == 'tf32' else 'fp32'} |" in table([row])
