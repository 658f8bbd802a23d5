"""What the forward family for Hopper does in its own way, on the emulator."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.values import Config
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC, Judge, traced, verdict
from tests.kernels.forward_runs import Run, packed

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_wgmma")
ONCE: dict[str, Any] = {"PERSISTENT": False, "OUT_APART": False}


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


@pytest.mark.parametrize("HS", [8, 24, 40, 80, 128, 192, 256])
def test_every_head_size_is_right(HS: int, judge: Judge) -> None:
    """Widths that are no whole slab of TMA's, and several slabs; the last start suits every grid."""
    problem = FORWARD.problem(B=1, NH=1, T=70, T_kv=150, HS=HS, dtype="fp16", causal=HS != 192)
    found = judge(problem, {**FAMILY.defaults, **ONCE, "BLOCK_N": 64})
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize(("HS", "dtype", "causal"), [(32, "bf16", True), (64, "fp16", False), (128, "bf16", True)])
def test_random_configurations_are_right(HS: int, dtype: str, causal: bool, judge: Judge) -> None:
    """A sample of the space of other head sizes, with another seed each."""
    problem = FORWARD.problem(B=1, NH=4, NH_kv=2, T=70, T_kv=177, HS=HS, dtype=dtype, causal=causal)
    space, rng = Space(FAMILY, problem, SPEC), np.random.default_rng(HS)
    for config in (space.sample(rng) for _ in range(3)):
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("block_m", [64, 256])
def test_groups_that_see_less_than_their_block(block_m: int, stages: int, judge: Judge) -> None:
    """Rows without a key, groups without rows, and tiles of keys that only some groups of a block see."""
    config = {**FAMILY.defaults, **ONCE, "BLOCK_M": block_m, "BLOCK_N": 64, "STAGES": stages, "PING_PONG": block_m > 64}
    for T, T_kv in ((203, 113), (300, 20), (64, 160), (260, 260)):
        problem = FORWARD.problem(B=1, NH=1, T=T, T_kv=T_kv, HS=16, dtype="fp16", causal=True)
        assert Space(FAMILY, problem, SPEC).why_not(config) is None
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), (T, T_kv)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("heads", [0, 2])
def test_blocks_that_do_one_tile_of_rows_after_another(heads: int, apart: bool, judge: Judge) -> None:
    """More tiles than multiprocessors, the last round not full."""
    problem = FORWARD.problem(B=2, NH=70, NH_kv=35, T=130, T_kv=90, HS=8, dtype="fp16", causal=True)
    config = {**FAMILY.defaults, "BLOCK_N": 48, "HEADS_AT_ONCE": heads, "OUT_APART": apart}
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    found = judge(problem, config)
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize(
    "changed", [ONCE, {**ONCE, "BLOCK_M": 192, "STAGES": 3, "PING_PONG": False}, {}, {**ONCE, "SPLIT": 4}], ids=str
)
def test_no_mistakes_of_the_pipeline(changed: Config, cache: BuildCache) -> None:
    """Every access is watched: what TMA and wgmma read and write, fences, phases, and bytes that are waited for."""
    heads = 140 if changed == {} else 2
    problem = FORWARD.problem(B=1, NH=heads, NH_kv=heads // 2, T=150, T_kv=200, HS=16, dtype="fp16", layout="bhtd")
    trace = traced(FAMILY, problem, {**FAMILY.defaults, "BLOCK_N": 48, **changed}, cache)
    assert [str(found) for found in trace.findings] == []


SMALL: dict[str, Any] = {"BLOCK_M": 64, "PING_PONG": False, "BLOCK_N": 64}


@pytest.mark.parametrize(
    ("HS", "HS_v", "changed"),
    [
        (64, 64, {"SPLIT": 2, "BLOCK_N": 64}),
        (40, 24, {"SPLIT": 4, "BLOCK_N": 48, "BLOCK_M": 192, "STAGES": 3, "PING_PONG": False}),
        (128, 128, {**SMALL, "SPLIT": 8, "MIN_BLOCKS": 2, "PACK_HEADS": True}),
        (80, 80, {**SMALL, "SPLIT": 32, "STAGES": 4}),
        (192, 128, {"SPLIT": 4, "BLOCK_N": 80}),
        (256, 256, {**SMALL, "SPLIT": 2, "PACK_HEADS": True}),
    ],
    ids=str,
)  # fmt: skip
def test_splits_share_out_the_keys(HS: int, HS_v: int, changed: Config, judge: Judge) -> None:
    """Fewer and more splits than there are tiles, rows and groups that see no key of a split, or none at all."""
    for T, T_kv, causal in ((70, 500, False), (203, 290, True), (300, 20, True), (5, 333, True)):
        dtype = "fp16" if causal else "bf16"
        problem = FORWARD.problem(B=2, NH=4, NH_kv=2, T=T, T_kv=T_kv, HS=HS, HS_v=HS_v, dtype=dtype, causal=causal)
        config = {**FAMILY.defaults, **ONCE, **changed}
        assert Space(FAMILY, problem, SPEC).why_not(config, called=True) is None
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), (T, T_kv)


def test_keys_are_split_where_multiprocessors_are_idle() -> None:
    config = {**FAMILY.defaults, **ONCE, "SPLIT": 8}
    many = FORWARD.problem(B=4, NH=16, T=1024, HS=64, dtype="fp16")
    why = Space(FAMILY, many, SPEC).why_not(config)
    assert why is not None
    assert "keys are split only as far as half the blocks would not fill the device" in why
    staying = Space(FAMILY, many, SPEC).why_not({**FAMILY.defaults, "SPLIT": 2})
    assert staying is not None
    assert "a split's block has one part of one tile of rows" in staying


@pytest.mark.parametrize(("dtype", "large"), [("fp16", 10000.0), ("bf16", 133120.0)])
def test_one_key_gives_its_value_whatever_the_score(dtype: str, large: float, cache: BuildCache) -> None:
    """Scores of which the rounding alone is worth powers of two: the largest weight is 1 all the same."""
    problem = FORWARD.problem(B=1, NH=1, T=70, T_kv=1, HS=64, dtype=dtype, causal=False)
    inputs = FORWARD.inputs(problem, seed=3)
    inputs["q"][...] = large
    inputs["k"][...] = large
    run = Run(FAMILY, problem, cache, {**FAMILY.defaults, **ONCE})
    got = run({name: packed(array) for name, array in inputs.items()})
    assert (got["out"] == inputs["v"].astype(np.float64)).all()


def test_supports() -> None:
    for HS in (8, 64, 80, 256):
        for dtype in ("fp16", "bf16"):
            problem = FORWARD.problem(HS=HS, dtype=dtype)
            assert FAMILY.why_unsupported(problem, SPEC) is None
            assert Space(FAMILY, problem, SPEC).size >= 30
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp32"), SPEC) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(HS=264, dtype="fp16"), SPEC) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp16"), gpu("a100")) is not None


@pytest.mark.parametrize("causal", [False, True])
def test_groups_without_rows_have_nothing_to_compute_again(causal: bool, cache: BuildCache) -> None:
    """Their O was NaN, for which all rows of a block were looked through: 2.5 times the time at T=512 on an H200.

    Five tiles of rows a head, of which the last has one group's; blocks that do it do another one, too.
    """
    problem = FORWARD.problem(B=1, NH=30, T=800, T_kv=64, HS=8, dtype="fp16", causal=causal)
    chosen = {
        **FAMILY.defaults,
        "BLOCK_M": 192,
        "BLOCK_N": 64,
        "OUT_APART": True,
        "PERSISTENT": True,
        "HEADS_AT_ONCE": 1,
    }
    trace = traced(FAMILY, problem, chosen, cache)
    assert {2, 4} & set(trace.kernels[0].traced)
    loads = {str(line.place) for line in trace.kernels[0].of("global load")}
    assert {place for place in loads if "tensor_copy" not in place} == set()
