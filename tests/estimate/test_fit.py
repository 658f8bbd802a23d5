"""What a configuration promises for a problem it was not timed for: against the times of shipped winners."""

import math
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from autotune.core.problem import Problem
from autotune.estimate.fit import Expected, Known, by_promise
from autotune.families.planning import make_plan
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.op import Op
from autotune.ops.registry import get_op, problem_of
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners

SPEC = gpu("h200")
FORWARD, BACKWARD = get_op("forward"), get_op("backward")
TEMPLATES = {op: {t.name: t for t in builtin_templates(op) if not t.front.historical} for op in ("forward", "backward")}
WINNERS = [line for line in shipped_winners() if line.problem.op in TEMPLATES and line.problem.dtype == "fp16"]


def valid(template: Template, known: Known, problem: Problem) -> bool:
    unsupported = template.why_unsupported(problem, SPEC)
    return unsupported is None and Space(template, problem, SPEC).why_not(known.candidate.config) is None


def contenders(problem: Problem, lines: list[Line]) -> Iterator[Known]:
    templates = TEMPLATES[problem.op]
    for line in lines:
        known = Known(line.candidate, line.problem, line.measurement.ms)
        alike = (line.problem.op, line.problem["HS"]) == (problem.op, problem["HS"])
        if alike and valid(templates[line.candidate.template], known, problem):
            yield known
    for template in templates.values():
        if template.why_unsupported(problem, SPEC) is None:
            space = Space(template, problem, SPEC)
            for config, start in space.known_starts():
                there, ms = (None, None) if start is None else (problem_of(start.problem), start.ms)
                yield Known(space.candidate(config), there, ms, listed=start is not None)


def ranked(problem: Problem, lines: list[Line] | None = None) -> list[Expected]:
    found = contenders(problem, WINNERS if lines is None else lines)
    return by_promise(found, TEMPLATES[problem.op], problem, SPEC)


def test_times_of_winners_are_foretold_from_other_problems() -> None:
    """With all that is known of a problem itself left out: right within a quarter for most, and on the whole."""
    ratios = []
    for line in WINNERS[::4]:
        best = ranked(line.problem, [other for other in WINNERS if other.problem != line.problem])[0]
        assert line.measurement.ms is not None
        ratios.append(best.ms / line.measurement.ms)
    assert len(ratios) >= 15
    assert 0.9 < median(ratios) < 1.1
    assert sum(0.75 < ratio < 1.25 for ratio in ratios) >= 0.85 * len(ratios), ratios
    assert all(0.5 < ratio < 1.5 for ratio in ratios), ratios


@pytest.mark.parametrize(
    "fields",
    [
        {"B": 1, "NH": 24, "T": 4608, "HS": 128, "dtype": "bf16", "causal": False},
        {"B": 2, "NH": 32, "T": 8192, "HS": 128, "dtype": "fp16", "causal": True},
        {"B": 8, "NH": 16, "T": 2048, "HS": 64, "dtype": "fp16", "causal": False},
    ],
    ids=str,
)
def test_nothing_is_promised_beyond_the_peak(fields: dict[str, Any]) -> None:
    """A step of decoding is bound by its bytes: its padded operations over its time are no rate of a prompt's."""
    problem = FORWARD.problem(**fields)
    decoding = FORWARD.problem(B=16, NH=32, NH_kv=8, T=1, T_kv=4096, HS=fields["HS"], dtype="bf16", causal=False)
    family = TEMPLATES["forward"]["flash_wgmma"]
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 2, "HEADS_AT_ONCE": 2}
    candidate = Space(family, problem, SPEC).candidate({**family.defaults, **config})
    found = by_promise([Known(candidate, decoding, 0.0765)], TEMPLATES["forward"], problem, SPEC)
    assert all(one.likely_ms > FORWARD.flops(problem) / (SPEC.tensor_tflops * 1e9) for one in found)


def heaviest(expected: Expected, problem: Problem) -> tuple[int, int]:
    """Blocks of the launch that has the products, and how many an SM has room for."""
    template = TEMPLATES[problem.op][expected.known.candidate.template]
    names = Space(template, problem, SPEC).namespace(expected.known.candidate.config)
    plan = make_plan(template, get_op(problem.op), problem, names)
    launch = max(plan.launches, key=lambda launch: launch.smem)
    return launch.blocks, SPEC.shared_memory_per_sm // (launch.smem + SPEC.reserved_shared_memory)


@pytest.mark.parametrize("HS", [64, 128])
@pytest.mark.parametrize("T_kv", [4096, 32768])
@pytest.mark.parametrize("NH_kv", [32, 8, 4, 1])
@pytest.mark.parametrize("B", [1, 16, 128])
def test_a_step_of_decoding_keeps_every_sm_busy(B: int, NH_kv: int, T_kv: int, HS: int) -> None:
    """Heads that share keys are packed; blocks fill nine tenths of the SMs, and of what they hold where there is enough
    to read: 64 KB of tiles an SM."""
    problem = FORWARD.problem(B=B, NH=32, NH_kv=NH_kv, T=1, T_kv=T_kv, HS=HS, dtype="fp16", causal=False)
    best = ranked(problem)[0]
    config = best.known.candidate.config
    assert config["PACK_HEADS"] is (NH_kv < 32)
    blocks, fit = heaviest(best, problem)
    if B == 1 and NH_kv == 1 and T_kv == 4096:  # 1 or 2 MB in all: starting up takes longer
        assert blocks >= 64
        return
    assert blocks / SPEC.sm_count >= 0.9
    waves = blocks / SPEC.sm_count / fit
    assert waves <= 1.0 or waves / math.ceil(waves) >= 0.9
    rows = 32 // NH_kv
    assert int(config["BLOCK_M"]) == (64 if config["BLOCK_M"] == 64 else 16 if rows <= 16 else 32)


@pytest.mark.parametrize(
    ("fields", "family", "values"),
    [
        ({"B": 16, "NH_kv": 8, "T_kv": 4096}, "flash_wgmma", {"BLOCK_M": 64, "BLOCK_N": 128, "STAGES": 3}),
        ({"B": 16, "NH_kv": 8, "T_kv": 32768}, "flash_mma", {"BLOCK_M": 16, "BLOCK_N": 32, "SPLIT": 4}),
        ({"B": 16, "NH_kv": 4, "T_kv": 32768}, "flash_mma", {"BLOCK_M": 16, "BLOCK_N": 32, "SPLIT": 8}),
        ({"B": 1, "NH_kv": 8, "T_kv": 32768}, "flash_wgmma", {"BLOCK_M": 64, "BLOCK_N": 64, "SPLIT": 16}),
        ({"B": 1, "NH_kv": 4, "T_kv": 32768}, "flash_mma", {"BLOCK_M": 16, "BLOCK_N": 32, "SPLIT": 128}),
        ({"B": 1, "NH_kv": 32, "T_kv": 32768}, "flash_mma", {"BLOCK_M": 16, "BLOCK_N": 32, "SPLIT": 16}),
        ({"B": 1, "NH_kv": 1, "T_kv": 32768}, "flash_mma", {"BLOCK_M": 32, "WARPS": 2, "SPLIT": 128}),
        ({"B": 128, "NH_kv": 8, "T_kv": 4096}, "flash_wgmma", {"BLOCK_M": 64, "MIN_BLOCKS": 2}),
        ({"B": 4, "NH_kv": 4, "T": 5, "T_kv": 8192}, "flash_wgmma", {"BLOCK_M": 64, "SPLIT": 8}),
    ],
)
def test_splits_of_keys_are_as_many_as_fill_the_gpu(
    fields: dict[str, int], family: str, values: dict[str, int]
) -> None:
    asked: dict[str, Any] = {"NH": 32, "T": 1, "HS": 128, "dtype": "fp16", "causal": False, **fields}
    problem = FORWARD.problem(**asked)
    candidate = ranked(problem)[0].known.candidate
    assert (candidate.template, {name: candidate.config.get(name) for name in values}) == (family, values)


def test_few_keys_get_small_blocks_or_shares_of_their_queries() -> None:
    """20 heads of 77 keys: with 128 keys a block 20 blocks have all the products, and 112 SMs have none."""
    problem = BACKWARD.problem(B=2, NH=10, T=4096, T_kv=77, causal=False)
    best = ranked(problem)[0]
    assert heaviest(best, problem)[0] >= 40
    whole = [e for e in ranked(problem) if e.known.candidate.config.get("QUERY_SPLIT", 1) == 1]
    assert whole[0].known.candidate.config["BLOCK_N"] in (32, 64)
    wide = next(e for e in whole if e.known.candidate.config["BLOCK_N"] == 128)
    assert wide.ms > 1.1 * whole[0].ms


def test_a_block_counts_with_what_an_sm_has_room_for() -> None:
    """With three stages of 64 keys two blocks fit on an SM, with 32 keys four, so more warps hide waits."""
    template = TEMPLATES["forward"]["flash_mma"]
    problem = FORWARD.problem(B=16, NH=32, NH_kv=8, T=1, T_kv=4096, HS=128, causal=False)
    few = {**template.defaults, "BLOCK_M": 16, "WARPS": 1, "STAGES": 3, "MIN_BLOCKS": 1, "SPLIT": 4, "PACK_HEADS": True}
    many = {**few, "BLOCK_N": 32}
    space = Space(template, problem, SPEC)
    assert space.contains(few)
    found = by_promise([Known(space.candidate(c)) for c in (few, many)], {"flash_mma": template}, problem, SPEC)
    assert [expected.known.candidate.config["BLOCK_N"] for expected in found] == [32, 64]


def test_what_nobody_timed_is_no_faster_than_a_quarter_of_the_gpu() -> None:
    """The unfused family alone, on fp32 units: 67 TFLOP/s at the most."""
    template = TEMPLATES["backward"]["unfused"]
    problem = BACKWARD.problem(B=4, NH=16, T=2048, causal=False)
    known = Known(Space(template, problem, SPEC).candidate(Space(template, problem, SPEC).default()))
    [expected] = by_promise([known], {"unfused": template}, problem, SPEC)
    assert expected.ms > BACKWARD.flops(problem) / (0.25 * SPEC.fp32_tflops * 1e9)


def test_a_problem_of_few_blocks_is_not_given_the_largest_tiles() -> None:
    """48 heads of 128 rows: with BLOCK_M=128 each is one block, and 84 of 132 SMs have none."""
    config = ranked(FORWARD.problem(B=4, NH=12, T=128, T_kv=4096))[0].known.candidate.config
    assert int(config["BLOCK_M"]) <= 64 or int(config.get("SPLIT", 1)) > 1


def test_nearer_times_count_more_and_unknown_ones_least() -> None:
    """Three records of one configuration, each promising the same rate."""
    template = TEMPLATES["forward"]["flash_mma"]
    problem = FORWARD.problem(B=4, NH=16, T=4096, HS=128)
    candidate = Space(template, problem, SPEC).candidate(template.defaults)
    twice, other = problem.replace(B=8), problem.replace(causal=False)
    same = [
        Known(candidate, problem, 1.0),
        Known(candidate, twice, 2.0),
        Known(candidate, other, 2.0),
        Known(candidate),
    ]
    found = by_promise(reversed(same), {"flash_mma": template}, problem, SPEC)
    assert [expected.known for expected in found] == same
    assert found[0].ms == pytest.approx(1.0, rel=1e-6)
    assert [expected.distance for expected in found] == [0.0, 1.0, 0.0, math.inf]
    assert [expected.alike for expected in found] == [True, True, False, False]
    assert found[3].ms == pytest.approx(1.6 * median(e.ms / (1.06, 1.1)[e is found[2]] for e in found[1:3]), rel=0.05)


@pytest.mark.parametrize(
    ("fields", "config", "pairs"),
    [
        ({"causal": False}, {"BLOCK_M": 64, "BLOCK_N": 64}, 1024 * 1024),
        ({"causal": False, "T": 1}, {"BLOCK_M": 128, "BLOCK_N": 64}, 128 * 1024),
        ({"causal": False, "T": 1, "NH_kv": 3}, {"BLOCK_M": 16, "BLOCK_N": 64, "PACK_HEADS": True}, 4 * 1024),
        ({"causal": False, "T_kv": 77}, {"BLOCK_M": 64, "BLOCK_N": 128}, 1024 * 128),
        ({"causal": False, "T_kv": 77}, {}, 1024 * 77),
        ({}, {"BLOCK_M": 64, "BLOCK_N": 64}, 1024 * 1024 - 960 * 960 / 2),
        ({"T_kv": 512}, {"BLOCK_M": 64, "BLOCK_N": 64}, 1024 * 512 - 448 * 448 / 2 - 512 * 512),
    ],
)
def test_operations_of_whole_tiles(fields: dict[str, int], config: dict[str, int], pairs: float) -> None:
    problem = FORWARD.problem(**{"T_kv": 1024, **fields})
    assert FORWARD.tiled_flops(problem, config) == pytest.approx(4 * 4 * 12 * 64 * pairs)
    like = BACKWARD.problem(**{"T_kv": 1024, **fields})
    assert BACKWARD.tiled_flops(like, config) == pytest.approx(10 * 4 * 12 * 64 * pairs)
    unmasked = BACKWARD.tiled_flops(like.replace(causal=False), config)
    assert BACKWARD.unmasked(like, config) == pytest.approx(BACKWARD.tiled_flops(like, config) / unmasked)


@pytest.mark.parametrize("name", ["flash_mma", "flash_simt"])
def test_a_head_counts_as_wide_as_its_tiles(name: str) -> None:
    """Of a time at HS=96, 80 columns promise the same where tiles have 96 in any case, and 80 / 96 of it elsewhere."""
    problem = FORWARD.problem(B=8, NH=32, T=4096, HS=96, dtype="fp16")
    space = Space(TEMPLATES["forward"][name], problem, gpu("a100"))
    known = Known(space.candidate(space.default()), problem, 50.0)
    wide, odd = (
        by_promise([known], TEMPLATES["forward"], each, gpu("a100"))[0].ms for each in (problem, problem.replace(HS=80))
    )
    doubt = 1.1  # another head size is another kind of problem
    assert odd / doubt / wide == pytest.approx(1.0 if name == "flash_mma" else 80 / 96, rel=1e-3)


def behind_a_mask(heads_at_once: int, op: str = "backward", **fields: Any) -> Expected:
    """What a configuration of `flash_wgmma` promises, timed for many heads, without a mask at the same pace."""
    asked: dict[str, Any] = {"B": 1, "NH": 16, "T": 2048, "HS": 128, "dtype": "fp16", "causal": True, **fields}
    problem, many = (get_op(op).problem(**{**asked, **more}) for more in ({}, {"B": 64, "NH": 16}))
    template = TEMPLATES[op]["flash_wgmma"]
    config = {**template.defaults, "HEADS_AT_ONCE": heads_at_once}
    known = Known(Space(template, problem, SPEC).candidate(config), many, 6.0 if problem["causal"] else 11.0)
    return by_promise([known], TEMPLATES[op], problem, SPEC)[0]


def test_a_heavy_block_is_no_faster_because_others_are_light() -> None:
    """Behind a mask the first keys have twice the mean work: where every block has an SM of its own, that is the time,
    and half of the heads take as long as all; of 64 times the heads the mean decides."""
    few, all_heads = (behind_a_mask(0, NH=heads).likely_ms for heads in (4, 8))
    assert few == pytest.approx(all_heads, rel=0.05)
    without = behind_a_mask(0, NH=8, causal=False).likely_ms
    assert without == pytest.approx(all_heads, rel=0.1)
    many, many_without = (behind_a_mask(0, B=32, causal=causal).likely_ms for causal in (True, False))
    assert many < 0.6 * many_without


def test_heads_one_after_the_other_end_with_heavy_blocks() -> None:
    """Of 256 blocks on 132 SMs, those of the last of 16 heads begin late and are as heavy as the first; all heads at
    once leave the light ones for the end."""
    assert behind_a_mask(1).likely_ms > 1.2 * behind_a_mask(0).likely_ms


def test_a_pace_from_far_away_is_doubted_as_much_as_a_time_from_there() -> None:
    """A start without a time is no surer than the winner whose pace it is given."""
    template = TEMPLATES["forward"]["flash_wgmma"]
    problem = FORWARD.problem(B=1, NH=12, T=512, HS=128, dtype="fp16", causal=False)
    far = problem.replace(B=16, NH=32, T=8192, T_kv=8192)
    space = Space(template, problem, SPEC)
    config = {**template.defaults, "PERSISTENT": False, "OUT_APART": False}
    timed = Known(space.candidate(config), far, 24.0)
    listed = Known(space.candidate({**config, "HEADS_AT_ONCE": 1}), listed=True)
    first, second = by_promise([listed, timed], TEMPLATES["forward"], problem, SPEC)
    assert (first.known, second.known) == (timed, listed)
    assert first.likely_ms == pytest.approx(second.likely_ms, rel=0.1)


@pytest.mark.parametrize(
    ("fields", "family", "values"),
    [
        ({"op": "backward", "B": 2, "NH": 64, "NH_kv": 4, "T": 1024}, "flash_wgmma", {"QUERY_SPLIT": 2}),
        ({"op": "backward", "B": 2, "NH": 64, "NH_kv": 2, "T": 1024}, "flash_wgmma", {"QUERY_SPLIT": 8}),
        ({"op": "backward", "B": 1, "NH": 16, "T": 512}, "flash_wgmma", {}),
        ({"op": "backward", "B": 4, "NH": 32, "T": 65}, "flash_wgmma", {}),
        ({"op": "forward", "B": 1, "NH": 1, "T": 512}, "flash_wgmma", {"BLOCK_M": 64}),
        ({"op": "forward", "B": 1, "NH": 3, "T": 512, "causal": True}, "flash_wgmma", {"BLOCK_M": 64}),
        ({"op": "forward", "B": 1, "NH": 12, "T": 257}, "flash_wgmma", {"BLOCK_M": 64}),
        ({"op": "forward", "B": 1, "NH": 32, "NH_kv": 8, "T": 63, "T_kv": 8192}, "flash_wgmma", {"SPLIT": 8}),
        ({"op": "forward", "B": 2, "NH": 16, "T": 362, "T_kv": 11584}, "flash_wgmma", {"SPLIT": 2}),
    ],
    ids=str,
)
def test_what_a_sweep_found_slow_is_answered_otherwise(
    fields: dict[str, Any], family: str, values: dict[str, Any]
) -> None:
    """On an H200 what was answered before took 1.4 to 3.4 times as long for its work as a neighbour's answer."""
    op, asked = fields["op"], {name: value for name, value in fields.items() if name != "op"}
    problem = get_op(op).problem(**{"HS": 128, "dtype": "fp16", "causal": False, **asked})
    candidate = ranked(problem)[0].known.candidate
    assert (candidate.template, {name: candidate.config.get(name) for name in values}) == (family, values)


@pytest.mark.parametrize("T", [160, 256, 320])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_that_blocks_add_up_are_not_free(T: int, *, causal: bool) -> None:
    """Shares of the queries, at these lengths of 12 heads, took 19.6 to 28.8 µs on an H200; without them 13 to 21."""
    problem = BACKWARD.problem(B=1, NH=12, T=T, HS=128, dtype="fp16", causal=causal)
    assert ranked(problem)[0].known.candidate.config["QUERY_SPLIT"] == 1


def test_one_key_head_has_its_queries_shared_out_all_the_same() -> None:
    """64 heads on one: 0.315 ms with 16 shares, 1.88 without."""
    problem = BACKWARD.problem(B=2, NH=64, NH_kv=1, T=1024, HS=128, dtype="fp16", causal=False)
    assert int(ranked(problem)[0].known.candidate.config["QUERY_SPLIT"]) >= 8


@pytest.mark.parametrize("fields", [{"B": 1, "NH": 12, "T": 2048}, {"B": 2, "NH": 64, "NH_kv": 8, "T": 1024}], ids=str)
def test_half_as_many_keys_a_block_add_twice_to_dq(fields: dict[str, Any]) -> None:
    """12 heads on an H200: 105 µs with 64 keys a block, of which the additions take 84, 93 µs with 128."""
    problem = BACKWARD.problem(HS=64, dtype="fp16", causal=False, **fields)
    found = ranked(problem)
    assert found[0].known.candidate.config["BLOCK_N"] == 128
    narrow = next(e for e in found if e.known.candidate.config["BLOCK_N"] == 64)
    blocks = -(-problem.integer("T_kv") // 64)
    added = problem.integer("B") * problem.integer("NH") * problem.integer("T") * 64 * blocks
    assert narrow.likely_ms > 2 * 4 * added / (SPEC.bandwidth_gbs * 1e6)


@pytest.mark.parametrize("HS", [33, 75, 129, 187])
@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
def test_rows_that_are_packed_first_take_longer_than_the_next_width(op: Op, HS: int) -> None:
    """One more launch, and rows that are written and read once more: families with a kernel `pack_rows` count both."""
    fields: dict[str, Any] = {"B": 2, "NH": 6, "T": 1024, "dtype": "fp16", "layout": "bhtd"}
    odd, even = (op.problem(**fields, HS=size) for size in (HS, (HS + 7) // 8 * 8))
    families = [family for family in TEMPLATES[op.name].values() if "pack_rows(" in family.text]
    assert families
    for family in families:
        space = Space(family, odd, SPEC)
        candidate = space.candidate(next(iter(space.valid_starts())))
        timed = Known(candidate, op.problem(**fields, HS=64), 0.5)
        (here,), (beside,) = (by_promise([timed], TEMPLATES[op.name], problem, SPEC) for problem in (odd, even))
        plan = make_plan(family, op, odd, space.namespace(candidate.config))
        assert "pack_rows" in plan.kernels
        nbytes = sum(buffer.nbytes for buffer in plan.buffers if buffer.name.endswith("_rows"))
        assert nbytes >= 3 * 12 * 1024 * 2 * even.integer("HS")  # of Q, K and V
        assert here.likely_ms > beside.likely_ms + 3e-3  # more than the launch alone
