"""What the fp32 tensor core family of the forward pass does in its own way, on the emulator."""

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
FAMILY = find_template("forward", "flash_tf32x3")
HEAD_SIZES = (8, 32, 64, 80, 160, 192, 256)


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


def default(problem: Problem) -> dict[str, Any]:
    return dict(Space(FAMILY, problem, SPEC).default())


@pytest.mark.parametrize("HS", [96, 192, 256])
def test_every_head_size_is_right(HS: int, judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=1, T=70, T_kv=150, HS=HS, dtype="fp32", causal=HS != 192)
    found = judge(problem, default(problem))
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize(("HS", "causal"), [(64, True), (128, False)])
def test_random_configurations_are_right(HS: int, causal: bool, judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=177, HS=HS, dtype="fp32", causal=causal)
    space, rng = Space(FAMILY, problem, SPEC), np.random.default_rng(HS)
    for config in (space.sample(rng) for _ in range(2)):
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_stages_and_order_where_rows_see_no_key(stages: int, reverse: bool, judge: Judge) -> None:
    """Blocks without a key, with fewer tiles than stages, and warps that see nothing of a tile."""
    problem = FORWARD.problem(B=1, NH=1, T=203, T_kv=113, HS=32, dtype="fp32", causal=True)
    config = {**default(problem), "STAGES": stages, "REVERSE": reverse, "BLOCK_N": 32, "PEEL": stages != 2}
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    for T, T_kv in ((203, 113), (300, 20), (64, 160)):
        found = judge(problem.replace(T=T, T_kv=T_kv), config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), (T, T_kv)


def test_supports() -> None:
    for HS in HEAD_SIZES:
        problem = FORWARD.problem(HS=HS, dtype="fp32")
        assert FAMILY.why_unsupported(problem, SPEC) is None
        assert Space(FAMILY, problem, SPEC).size > 500
        assert Space(FAMILY, problem, gpu("rtx4090")).size > 50
    for refused in ({"dtype": "fp16"}, {"dtype": "bf16"}, {"dtype": "fp32", "HS": 260}):
        assert FAMILY.why_unsupported(FORWARD.problem(**refused), SPEC) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp32"), gpu("t4")) is not None


LEFT_OUT = {
    "both small products": ("tf32", "int product = 0; product < 3", "int product = 2; product < 3"),
    "small times big": ("tf32", "int product = 0; product < 3", "int product = 1; product < 3"),
    "big times small": ("tf32", "product < 3; ++product", "product < 3; product += 2"),
    "both small products in bf16": ("bf16", "b[n].small[0], b[n].small[1]", "0u, 0u"),
    "small times big in bf16": ("bf16", "pack_bf16(parts.small[i], parts.small[i + 2])", "0"),
    "big times small in bf16": ("bf16", "pack_bf16(parts.big[i], parts.big[i + 2])", "0"),
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
    worst = max(check.max_abs_error / check.bound for check in found.verification.checks)
    assert worst > 5


CLEAN: tuple[dict[str, Any], ...] = (
    {},
    {"HS": 72, "STAGES": 2, "REVERSE": True, "Q_IN": "shared", "SMALL": "tf32"},
    {"STAGES": 3, "BLOCK_M": 64, "WARPS": 2, "BLOCK_N": 16, "SWIZZLE": True, "Q_IN": "registers"},
)


@pytest.mark.parametrize("changed", CLEAN, ids=["default", "two stages", "three stages, swizzled"])
def test_no_races_and_no_bank_conflicts(changed: Config, cache: BuildCache) -> None:
    """Every access of every thread is watched: races, bounds, copies not waited for, passes through shared memory."""
    config = dict(changed)
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=200, HS=config.pop("HS", 64), dtype="fp32", layout="bhtd")
    trace = traced(FAMILY, problem, {**default(problem), **config}, cache)
    assert [str(found) for found in trace.findings] == []
    lines = [line for kernel in trace.kernels for line in kernel.lines]
    assert {"matrix load", "async copy", "shared load"} <= {line.operation for line in lines}
    # Q is split once a block by vectors; what every step reads must not conflict.
    every_step = [line for line in lines if line.operation in {"matrix load", "async copy"} or line.nbytes == 4]
    assert {"matrix load", "async copy", "shared load"} <= {line.operation for line in every_step}
    assert [str(line) for line in every_step if line.conflicts] == []
