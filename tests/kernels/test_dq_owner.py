"""A warp group that owns dQ, in the backward family for Hopper: on the emulator."""

import dataclasses
import re
from functools import partial

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from tests.kernels.attention_cases import SPEC, Judge, traced, traced_source, verdict
from tests.kernels.backward_runs import BACKWARD

FAMILY = find_template("backward", "flash_wgmma")
OK = (Outcome.OK, "")
BULK: dict[str, Value] = {"DQ_ACCUMULATE": "bulk"}


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


def owned(problem: Problem, changed: Config) -> dict[str, Value]:
    config = {**FAMILY.defaults, "DQ_OWNER": True, **changed}
    assert Space(FAMILY, problem, SPEC).why_not(config, called=True) is None
    return config


def constants(problem: Problem, config: Config) -> dict[str, str]:
    return dict(
        re.findall(r"^constexpr \w+ (\w+) = ([^;]+);", render(FAMILY, problem, config, SPEC).body, re.MULTILINE)
    )


@pytest.mark.parametrize(
    ("HS", "changed"),
    [
        (32, {}),
        (32, {"BLOCK_N": 192, **BULK}),
        (64, {"ORDER": "early", "SPARED_REGISTERS": 16, **BULK}),
        (64, {"BLOCK_N": 64, "BLOCK_M": 128, "NEXT_KERNEL": "at_start"}),
        (64, {"BLOCK_M": 128, "Q_STAGES": 1, "DO_STAGES": 1}),
        (72, {"Q_STAGES": 3, "DO_STAGES": 1}),
        (96, {"BLOCK_N": 64}),
        (112, {}),
        (128, {"NEXT_KERNEL": "at_end"}),
        (128, {"ORDER": "early", **BULK}),
        (75, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_are_right(HS: int, changed: Config, causal: bool, judge: Judge) -> None:
    """Ragged lengths, heads that share keys; several parts of dQ, and whole rows; also where its group loads."""
    for T, T_kv in ((203, 290), (150, 77)):
        dtype = "fp16" if causal else "bf16"
        problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=T, T_kv=T_kv, HS=HS, dtype=dtype, causal=causal)
        found = judge(problem, owned(problem, changed))
        assert (found.outcome, found.message) == OK, (T, T_kv)


@pytest.mark.parametrize(
    ("HS", "HS_v", "changed"),
    [
        (64, 64, {"QUERY_SPLIT": 4, "NEXT_KERNEL": "at_start"}),
        (64, 64, {"BLOCK_M": 128, "QUERY_SPLIT": 2}),
        (40, 24, {"QUERY_SPLIT": 8, **BULK}),
        (32, 80, {"BLOCK_M": 128}),
    ],
    ids=str,
)
def test_shares_of_queries_and_other_values(HS: int, HS_v: int, changed: Config, judge: Judge) -> None:
    for T, T_kv, causal in ((203, 77, False), (290, 150, True)):
        problem = BACKWARD.problem(
            B=1, NH=6, NH_kv=2, T=T, T_kv=T_kv, HS=HS, HS_v=HS_v, dtype="fp16" if causal else "bf16", causal=causal
        )  # fmt: skip
        found = judge(problem, owned(problem, changed))
        assert (found.outcome, found.message) == OK, (T, T_kv)


def test_blocks_that_begin_at_different_queries(judge: Judge) -> None:
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=2, T=300, T_kv=290, HS=64, dtype="bf16", causal=False)
    for changed in ({"STAGGER": True}, {"STAGGER": True, "BLOCK_M": 128}):
        found = judge(problem, owned(problem, changed))
        assert (found.outcome, found.message) == OK, changed


WATCHED = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=300, T_kv=150, HS=64, dtype="fp16", layout="bhtd")
TALL = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=500, T_kv=150, HS=64, dtype="fp16", layout="bhtd", causal=False)


@pytest.mark.parametrize(
    ("problem", "changed"),
    [
        (WATCHED, {}),
        (WATCHED, {"ORDER": "early", **BULK}),
        (WATCHED, {"QUERY_SPLIT": 2, "NEXT_KERNEL": "at_start"}),
        (TALL, {"BLOCK_M": 128, "NEXT_KERNEL": "at_start"}),
        (TALL, {"BLOCK_M": 128, "Q_STAGES": 1, "DO_STAGES": 1, **BULK}),
    ],
    ids=str,
)
def test_no_mistakes_of_the_pipeline(problem: Problem, changed: Config, cache: BuildCache) -> None:
    """Every access is watched: what TMA and wgmma read and write, fences, phases, bytes that are waited for, races."""
    trace = traced(FAMILY, problem, owned(problem, changed), cache)
    assert [str(found) for found in trace.findings] == []


# with fewer stages what is loaded next comes behind dQ of the tile whose place dS takes
THREE: dict[str, Value] = {"BLOCK_M": 128, "Q_STAGES": 3, "DO_STAGES": 3}
EARLY_RELEASE = (r"(wgmma_wait<0>\(dq\);)\s+(if \(row \+ 64[^;]+;)", r"\2 \1")
FAULTS = {
    "released before its product is done": (EARLY_RELEASE, "shared memory race"),
    "placed before it is released": ((r"shared\.pair_tiles\.wait_empty\(exchanged\);", ""), "shared memory race"),
    "taken before it is placed": ((r"shared\.pair_tiles\.wait_full\(at\);", ""), "read of what nobody wrote"),
    "placed without a fence": (
        (r"fence_async_shared\(\);\s+(shared\.pair_tiles\.filled)", r"\1"),
        "missing proxy fence",
    ),
    "dK where K is still read": (
        (r"named_barrier<CONSUMERS \+ 128>\(8\);", "named_barrier<CONSUMERS>(7);"),
        "shared memory race",
    ),
}


@pytest.mark.parametrize(("problem", "changed"), [(WATCHED, {}), (TALL, THREE)], ids=["apart", "loads"])
@pytest.mark.parametrize(("fault", "kind"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_exchange_is_found(
    fault: tuple[str, str], kind: str, problem: Problem, changed: Config, cache: BuildCache
) -> None:
    source = render(FAMILY, problem, owned(problem, changed), SPEC)
    body, places = re.subn(*fault, source.body)
    assert places > 0
    trace = traced_source(dataclasses.replace(source, body=body), problem, cache)
    assert kind in {found.kind for found in trace.findings}


@pytest.mark.parametrize(
    ("HS", "changed", "registers"),
    [
        (64, {}, (208, 72, 24)),
        (64, {"SPARED_REGISTERS": 16}, (192, 104, 24)),
        (96, {}, (200, 88, 24)),
        (112, {}, (208, 72, 24)),
        (32, {"BLOCK_N": 192}, (128, 72, 24)),
        (64, {"BLOCK_M": 128}, (224, 56, None)),
        (128, {}, (224, 56, None)),
    ],
    ids=str,
)
def test_registers_of_the_groups(HS: int, changed: Config, registers: tuple[int, int, int | None]) -> None:
    """Those with keys, the owner and, where there is one, the producer have together what a multiprocessor has."""
    problem = BACKWARD.problem(HS=HS, dtype="fp16")
    config = owned(problem, changed)
    found = constants(problem, config)
    names = ("CONSUMER_REGISTERS", "OWNER_REGISTERS", "PRODUCER_REGISTERS")
    assert tuple(int(found[name]) if name in found else None for name in names) == registers
    keys, owner, producer = registers
    assert int(found["BLOCK_N"]) // 64 * keys + owner + (producer or 0) <= 512


@pytest.mark.parametrize(
    ("HS", "changed", "why"),
    [
        (64, {"ORDER": "late"}, "what comes late is dQ"),
        (64, {"DQ_ACCUMULATE": "turns"}, "adds it to sums that others add to"),
        (64, {"DQ_ACCUMULATE": "separate"}, "adds it to sums that others add to"),
        (64, {"BLOCK_M": 96}, "64 rows each"),
        (128, {"Q_STAGES": 1}, "does so for Q and dO together"),
        (64, {"BLOCK_M": 128, "Q_STAGES": 3, "DO_STAGES": 3}, "a register too many"),
        (64, {"BLOCK_M": 128, "SPARED_REGISTERS": 8}, "registers"),
        (64, {"BLOCK_N": 192}, "registers"),
        (64, {"BLOCK_N": 64, "SPARED_REGISTERS": 8}, "more than enough"),
    ],
    ids=str,
)
def test_what_does_not_fit(HS: int, changed: Config, why: str) -> None:
    space = Space(FAMILY, BACKWARD.problem(HS=HS, dtype="fp16"), SPEC)
    assert why in str(space.why_not({**FAMILY.defaults, "DQ_OWNER": True, **changed}))
