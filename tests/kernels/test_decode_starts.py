"""The starts for few queries over long keys, executed: rows of heads that share keys, splits, blocks that stay."""

from typing import Any

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC, verdict


@pytest.mark.parametrize(
    ("name", "fields", "values"),
    [
        (
            "flash_mma",
            {"B": 2, "NH": 4, "NH_kv": 1, "T": 1, "T_kv": 515},
            {"BLOCK_M": 16, "BLOCK_N": 32, "STAGES": 3, "SPLIT": 16, "PACK_HEADS": True},
        ),
        (
            "flash_wgmma",
            {"B": 67, "NH": 4, "NH_kv": 2, "T": 1, "T_kv": 150},
            {"BLOCK_M": 64, "STAGES": 4, "PERSISTENT": True, "PACK_HEADS": True},
        ),
    ],
)
def test_steps_of_decoding_are_right(
    name: str, fields: dict[str, Any], values: dict[str, Any], cache: BuildCache
) -> None:
    """A start that is listed for the problem has these values."""
    family = find_template("forward", name)
    problem = get_op("forward").problem(**fields, HS=64, dtype="bf16", causal=False)
    starts = Space(family, problem, SPEC).starts()
    config = next(start for start in starts if {**start, **values} == start)
    found = verdict(family, problem, config, cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")
