"""What the backward family whose warp groups have queries does in its own way, on the emulator."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.errors import AutotuneError
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.families.catalogue import Families
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template, load_template
from autotune.gpus.known import gpu
from tests.kernels.attention_cases import SPEC, Judge, traced, verdict
from tests.kernels.backward_runs import BACKWARD, agree, inputs_of, run

FAMILY = find_template("backward", "flash_wgmma_queries")
KEYS: dict[str, Value] = {"GRADIENT_ROWS": "keys"}
NARROW: dict[str, Value] = {**KEYS, "BLOCK_N": 64}
PLAIN: dict[str, Value] = {"ORDER": "plain", "BLOCK_N": 64, "Q_STAGES": 1, "DO_STAGES": 1}
BULK: dict[str, Value] = {"DQ_ACCUMULATE": "bulk"}
OK = (Outcome.OK, "")


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


def valid(problem: Problem, changed: Config) -> dict[str, Value]:
    config = {**FAMILY.defaults, **changed}
    assert Space(FAMILY, problem, SPEC).why_not(config, called=True) is None
    return config


@pytest.mark.parametrize(
    ("HS", "changed"),
    [
        (8, KEYS),
        (32, {**KEYS, **BULK}),
        (64, {}),
        (64, {**KEYS, "PAIR_STAGES": 2}),
        (72, {"BLOCK_N": 80}),
        (96, {**PLAIN, **NARROW, **BULK}),
        (128, {"BLOCK_N": 80}),
        (128, NARROW),
        (192, PLAIN),
        (248, PLAIN),
        (256, {**PLAIN, **KEYS}),
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
def test_every_head_size_is_right(HS: int, changed: Config, causal: bool, judge: Judge) -> None:
    """Rows of products that are keys and columns of the head, groups that share them out, or have a gradient each."""
    dtype = "fp16" if causal else "bf16"
    problem = BACKWARD.problem(B=1, NH=4, NH_kv=2, T=150, T_kv=203, HS=HS, dtype=dtype, causal=causal)
    found = judge(problem, valid(problem, changed))
    assert (found.outcome, found.message) == OK


@pytest.mark.parametrize(
    ("HS", "HS_v", "changed", "share"),
    [
        (64, 64, {}, "BY_GRADIENT"),
        (128, 128, {"BLOCK_N": 96}, "BY_ROWS"),
        (64, 64, KEYS, "BY_ROWS"),
        (192, 128, PLAIN, "BY_COLUMNS"),
        (128, 64, {"BLOCK_N": 64}, "BY_COLUMNS"),
        (40, 24, KEYS, "BY_ROWS"),
        (64, 64, {"BLOCK_N": 96, "WARP_GROUPS": 3}, "BY_COLUMNS"),
        (48, 48, {**NARROW, "WARP_GROUPS": 3}, "BY_COLUMNS"),
        (96, 96, {**NARROW, **PLAIN, "WARP_GROUPS": 3}, "BY_COLUMNS"),
        (192, 256, PLAIN, "BY_COLUMNS"),
    ],
    ids=str,
)
def test_how_groups_share_out_gradients(HS: int, HS_v: int, changed: Config, share: str, judge: Judge) -> None:
    """Each way there is, two and three groups, values of another size."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=203, T_kv=150, HS=HS, HS_v=HS_v, dtype="fp16", causal=False)
    config = valid(problem, changed)
    namespace = Space(FAMILY, problem, SPEC).namespace(config)
    assert {name for name in ("BY_ROWS", "BY_GRADIENT", "BY_COLUMNS") if namespace[name]} == {share}
    found = judge(problem, config)
    assert (found.outcome, found.message) == OK


@pytest.mark.parametrize("changed", [{}, {"BLOCK_N": 80, "ORDER": "plain"}, {**KEYS, "PAIR_STAGES": 2}], ids=str)
def test_blocks_that_see_little(changed: Config, judge: Judge) -> None:
    """Rows without a key, groups without rows, one tile of queries alone, and one key."""
    for T, T_kv in ((203, 113), (300, 20), (64, 260), (1, 1)):
        problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=T, T_kv=T_kv, HS=64, dtype="fp16", causal=True)
        found = judge(problem, valid(problem, changed))
        assert (found.outcome, found.message) == OK, (T, T_kv)


@pytest.mark.parametrize(
    ("HS", "changed"),
    [
        (64, {}),
        (64, {"PAIR_STAGES": 2, "NEXT_KERNEL": "at_start"}),
        (64, {**PLAIN, **KEYS, "BLOCK_N": 128}),
        (64, {"ORDER": "plain", "PAIR_STAGES": 2, "BLOCK_N": 80}),
        (32, {**KEYS, **BULK, "PAIR_STAGES": 2}),
        (72, {"BLOCK_N": 96}),
        (128, {"BLOCK_N": 80}),
        (48, {**NARROW, "WARP_GROUPS": 3}),
    ],
    ids=str,
)
def test_no_mistakes_of_the_pipeline(HS: int, changed: Config, cache: BuildCache) -> None:
    """Every access is watched: what TMA and wgmma read and write, fences, phases, bytes that are waited for, races."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=400, T_kv=150, HS=HS, dtype="fp16", layout="bhtd", causal=False)
    trace = traced(FAMILY, problem, valid(problem, changed), cache)
    assert [str(found) for found in trace.findings] == []


EXCHANGE = (
    ("fence_async_shared();\n        shared.pair_tiles.filled(exchanged);", "shared.pair_tiles.filled(exchanged);"),
    ("shared.pair_tiles.wait_full(at);", ""),
    ("shared.pair_tiles.wait_empty(exchanged);", ""),
    ("wgmma_wait<0>(parts...);\n            release(", "release("),
)


@pytest.mark.parametrize(("text", "fault"), EXCHANGE, ids=("fence", "full", "empty", "products"))
def test_faults_of_the_exchange_are_found(text: str, fault: str, tmp_path: Path, cache: BuildCache) -> None:
    """Of what groups exchange, a fence or a wait left out: findings, or a launch that ends with a message."""
    assert text in FAMILY.text
    path = tmp_path / "flash_wgmma_queries.cu.j2"
    path.write_text(FAMILY.text.replace(text, fault))
    family = load_template(path)
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=400, T_kv=150, HS=64, dtype="fp16", causal=False)
    config = {**FAMILY.defaults, "BLOCK_N": 64, "Q_STAGES": 3, "DO_STAGES": 3}
    try:
        findings: list[Any] = list(traced(family, problem, config, cache).findings)
    except AutotuneError as error:
        findings = [error]
    assert findings


def test_heads_that_take_turns(cache: BuildCache) -> None:
    """6 key heads, all at once, and two at a time; one at a time is the default."""
    problem = BACKWARD.problem(B=3, NH=4, NH_kv=2, T=37, T_kv=150, HS=64, dtype="fp16", causal=True)
    inputs = inputs_of(problem, 6)
    for heads in (0, 2):
        config = valid(problem, {"HEADS_AT_ONCE": heads, "NEXT_KERNEL": "at_end"})
        agree(run(FAMILY, problem, config, inputs, {}, cache), problem, inputs, 3e-3)


@pytest.mark.parametrize("changed", [{}, {"BLOCK_N": 80}, KEYS], ids=str)
def test_what_is_marked_is_computed_again(changed: Config, cache: BuildCache) -> None:
    """An infinity in one row of dO, which some keys do not see: warps that have none of its column mark nothing."""
    problem = BACKWARD.problem(B=1, NH=1, NH_kv=1, T=80, T_kv=80, HS=64, dtype="bf16", causal=True)
    inputs = inputs_of(problem, 3)
    expected = BACKWARD.reference(problem, inputs)
    inputs["dout"][0, 0, 40, 39] = np.inf
    got = run(FAMILY, problem, valid(problem, changed), inputs, {}, cache)
    assert np.isinf(got["dv"][0, 0, :41, 39].astype(float)).all()
    untouched = {"dq": np.delete(np.arange(80), 40), "dk": np.arange(41, 80), "dv": np.arange(41, 80)}
    for name, rows in untouched.items():
        found, right = got[name].astype(np.float64)[0, 0, rows], expected[name][0, 0, rows]
        np.testing.assert_allclose(found, right, rtol=0, atol=2e-2 * np.abs(right).max(), err_msg=name)


def test_supports() -> None:
    for HS in range(8, 257, 8):
        for dtype in ("fp16", "bf16"):
            problem = BACKWARD.problem(HS=HS, dtype=dtype)
            assert FAMILY.why_unsupported(problem, SPEC) is None
            assert Space(FAMILY, problem, SPEC).size >= 30
    for HS, HS_v in ((64, 256), (256, 40), (192, 256), (8, 128), (128, 24), (176, 208)):
        problem = BACKWARD.problem(HS=HS, HS_v=HS_v, dtype="fp16")
        assert FAMILY.why_unsupported(problem, SPEC) is None
        assert Space(FAMILY, problem, SPEC).size > 0
    others: tuple[dict[str, Value], ...] = (
        {"HS": 64, "dtype": "fp32"},
        {"HS": 264},
        {"HS": 75},
        {"HS": 64, "HS_v": 50},
        {"HS": 32, "HS_v": 192},
    )
    for other in others:
        fields: dict[str, Any] = {"dtype": "fp16", **other}
        assert FAMILY.why_unsupported(BACKWARD.problem(**fields), SPEC) is not None
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp16"), gpu("a100")) is not None


@pytest.mark.parametrize("HS", [32, 64, 128, 256])
def test_nothing_answers_with_it_before_it_was_timed(HS: int) -> None:
    assert FAMILY.unproven
    problem = BACKWARD.problem(HS=HS, dtype="fp16")
    assert Families(builtin_templates("backward")).default(problem, SPEC).template == "flash_wgmma"
