"""What the fp32 family for Hopper does in its own way, on the emulator."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.expected import expect
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC, Judge, traced, verdict

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_wgmma_tf32x3")
TURNS: dict[str, Any] = {"OVERLAP": True, "PING_PONG": True}


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


def default(problem: Problem) -> dict[str, Any]:
    return dict(Space(FAMILY, problem, SPEC).default())


@pytest.mark.parametrize("HS", [8, 24, 80, 128, 256])
def test_every_head_size_is_right(HS: int, judge: Judge) -> None:
    """Lines of every width, and slabs that are not full."""
    problem = FORWARD.problem(B=1, NH=1, T=70, T_kv=150, HS=HS, dtype="fp32", causal=HS != 256)
    found = judge(problem, default(problem))
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize(("HS", "causal"), [(32, True), (64, False), (128, True)])
def test_random_configurations_are_right(HS: int, causal: bool, judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=4, NH_kv=2, T=70, T_kv=177, HS=HS, dtype="fp32", causal=causal)
    space, rng = Space(FAMILY, problem, SPEC), np.random.default_rng(HS)
    for config in (space.sample(rng) for _ in range(2)):
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize(
    "changed", [{"BLOCK_M": 256, "STAGES": 1}, {**TURNS, "STAGES": 3}, {"PING_PONG": True}], ids=str
)  # fmt: skip
def test_groups_that_see_less_than_their_block(changed: Config, judge: Judge) -> None:
    """Rows without a key, groups without rows, and tiles of keys that only some groups of a block see."""
    problem = FORWARD.problem(B=1, NH=1, T=203, T_kv=113, HS=16, dtype="fp32", causal=True)
    config = {**FAMILY.defaults, **changed}
    for T, T_kv in ((203, 113), (300, 20), (64, 160), (260, 260)):
        assert Space(FAMILY, problem.replace(T=T, T_kv=T_kv), SPEC).why_not(config) is None
        found = judge(problem.replace(T=T, T_kv=T_kv), config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), (T, T_kv)


WATCHED: tuple[dict[str, Any], ...] = (
    {},
    {**TURNS, "Q_IN": "registers", "BLOCK_M": 128},
    {"Q_ROUNDS": 2, "SMALL": "tf32"},
)


@pytest.mark.parametrize("changed", WATCHED, ids=str)
def test_no_mistakes_of_the_pipeline(changed: Config, cache: BuildCache) -> None:
    """Every access is watched: what bulk copies and wgmma read and write, fences, phases and bytes waited for."""
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=100, HS=16, dtype="fp32", layout="bhtd")
    trace = traced(FAMILY, problem, {**FAMILY.defaults, "STAGES": 1, **changed}, cache)
    assert [str(found) for found in trace.findings] == []


def test_supports() -> None:
    for HS in (8, 64, 80, 128, 192, 256):
        problem = FORWARD.problem(HS=HS, dtype="fp32")
        assert FAMILY.why_unsupported(problem, SPEC) is None
        assert Space(FAMILY, problem, SPEC).size >= 8
    for refused in ({"dtype": "fp16"}, {"dtype": "fp32", "HS": 36}, {"dtype": "fp32", "HS": 248}):
        assert FAMILY.why_unsupported(FORWARD.problem(**refused), SPEC) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp32"), gpu("a100")) is not None


LEFT_OUT = {
    "small times big": ("tf32", "(d, a_small, b_big, !first);", "(d, a_big, b_small, !first);"),
    "big times small": ("tf32", "wgmma<float, N>(d, a_big, b_small, 1);", ""),
    "small times big in bf16": ("bf16", "pack<__nv_bfloat16>(rounded[2 * i], rounded[2 * i + 1])", "0"),
    "big times small in bf16": ("bf16", "pack<__nv_bfloat16>(rest[2 * i], rest[2 * i + 1])", "0"),
}


@pytest.mark.parametrize("wrong", LEFT_OUT)
def test_plain_tf32_is_rejected(wrong: str, cache: BuildCache) -> None:
    """The bound of three products is of no use to a kernel that leaves one out."""
    problem = FORWARD.problem(B=1, NH=1, T=70, T_kv=90, HS=64, dtype="fp32", causal=True)
    small, old, new = LEFT_OUT[wrong]
    source = render(FAMILY, problem, {**default(problem), "SMALL": small}, SPEC)
    headers = [replace(header, text=header.text.replace(old, new)) for header in source.includes]
    assert [old in header.text for header in source.includes].count(True) == 1
    artifact = build_emulator(replace(source, includes=tuple(headers)), cache)
    device = CpuDevice(SPEC, threads=2)
    found = Bench(device, FORWARD, expect(FORWARD, problem, seed=1)).evaluate(artifact, source.plan, None)
    device.close()
    assert found.outcome is Outcome.WRONG_RESULT
    assert found.verification is not None
    assert max(check.max_abs_error / check.bound for check in found.verification.checks) > 5
