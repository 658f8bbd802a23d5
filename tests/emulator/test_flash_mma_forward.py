"""The tensor core family of the forward pass on the emulator: hard shapes, dtypes, layouts, strides, its parameters."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.build.artifact import Artifact
from autotune.build.cache import BuildCache
from autotune.build.emulator import build_emulator
from autotune.check.tracing import trace_plan
from autotune.devices.cpu import CpuDevice
from autotune.devices.gpus import gpu
from autotune.expected import expect
from autotune.measure import Bench, Verdict
from autotune.ops.registry import get_op
from autotune.outcome import Outcome
from autotune.problem import Problem
from autotune.render import render
from autotune.space import Space
from autotune.template import find_template
from autotune.values import Config
from tests.emulator.attention_cases import CASES, SPEC, AttentionCase, covering
from tests.emulator.test_forward_kernels import Run, agree, packed, place

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_mma")
HEAD_SIZES = (32, 64, 96, 128, 192, 256)

Judge = Callable[[Problem, Config], Verdict]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    return BuildCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    """Runs a candidate twice and checks every element. Lengths and heads are arguments: one build serves many."""
    builds: dict[str, Artifact] = {}

    def run(problem: Problem, config: Config) -> Verdict:
        source = render(FAMILY, problem, config, SPEC)
        artifact = builds.setdefault(source.hash, build_emulator(source, cache))
        device = CpuDevice(SPEC, threads=2)
        try:
            return Bench(device, FORWARD, expect(FORWARD, problem, seed=1)).evaluate(artifact, source.plan, None)
        finally:
            device.close()

    return run


def default(problem: Problem) -> dict[str, Any]:
    return dict(Space(FAMILY, problem, SPEC).default())


def start(problem: Problem, number: int) -> dict[str, Any]:
    """One of the configurations that the family begins with, its default included."""
    starts = Space(FAMILY, problem, SPEC).starts()
    return dict(starts[number % len(starts)])


def supported(case: AttentionCase) -> Problem:
    """The case with a dtype and a head size that tensor cores take."""
    fields = {**case.fields, "dtype": "fp16" if case.fields["dtype"] == "fp32" else case.fields["dtype"]}
    return FORWARD.problem(**{**fields, "HS": fields["HS"] if fields["HS"] in HEAD_SIZES else 64})


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=[case.name for case in CASES])
def test_every_case_is_right(number: int, case: AttentionCase, judge: Judge) -> None:
    problem = supported(case)
    found = judge(problem, start(problem, number))
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize(("HS", "number"), [(96, 0), (128, 1), (192, 0), (256, 0), (256, 1), (256, 2)])
def test_every_head_size_is_right(HS: int, number: int, judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=1, T=70, T_kv=150, HS=HS, dtype="fp16", causal=HS != 192)
    found = judge(problem, start(problem, number))
    assert (found.outcome, found.message) == (Outcome.OK, "")


def test_every_parameter_value_is_right(judge: Judge) -> None:
    """A sample of the space: each value of each parameter that can be had, on lengths that no tile divides."""
    problem = FORWARD.problem(B=1, NH=3, NH_kv=1, T=37, T_kv=203, HS=64, dtype="bf16", causal=True)
    for config in covering(Space(FAMILY, problem, SPEC), seed=3):
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize(("HS", "dtype", "causal"), [(32, "bf16", True), (128, "fp16", False), (256, "bf16", True)])
def test_random_configurations_are_right(HS: int, dtype: str, causal: bool, judge: Judge) -> None:
    """A sample of the space of other head sizes, with another seed each."""
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=70, T_kv=177, HS=HS, dtype=dtype, causal=causal)
    space, rng = Space(FAMILY, problem, SPEC), np.random.default_rng(HS)
    for config in (space.sample(rng) for _ in range(3)):
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_stages_and_order_where_rows_see_no_key(stages: int, reverse: bool, judge: Judge) -> None:
    """Blocks without a key, with fewer tiles than stages, and warps that see nothing of a tile."""
    problem = FORWARD.problem(B=1, NH=1, T=203, T_kv=113, HS=32, dtype="fp16", causal=True)
    config = {**FAMILY.defaults, "STAGES": stages, "REVERSE": reverse, "BLOCK_N": 32}
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    for T, T_kv in ((203, 113), (300, 20), (64, 160)):
        found = judge(problem.replace(T=T, T_kv=T_kv), config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), (T, T_kv)


def test_supports() -> None:
    for HS in HEAD_SIZES:
        for dtype in ("fp16", "bf16"):
            problem = FORWARD.problem(HS=HS, dtype=dtype)
            assert FAMILY.why_unsupported(problem, SPEC) is None
            assert Space(FAMILY, problem, SPEC).size > 1000
        assert Space(FAMILY, FORWARD.problem(HS=HS, dtype="fp16"), gpu("t4")).size > 100
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp32"), SPEC) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(HS=80, dtype="fp16"), SPEC) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp16"), gpu("t4")) is None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="bf16"), gpu("t4")) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp16"), gpu("v100")) is not None


@pytest.fixture(scope="module")
def odd(cache: BuildCache) -> Run:
    return Run(FAMILY, FORWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp16", causal=True), cache)


def test_odd_strides(odd: Run) -> None:
    """An inner stride of 2, rows that start between vectors, a base that is not aligned, outputs with gaps."""
    inputs = FORWARD.inputs(odd.problem, seed=2)
    out = np.zeros((2, 2, 37, 64), np.float16)
    q = place(inputs["q"], (2 * 37 * 128, 37 * 128, 128, 2))
    k = place(inputs["k"], (50 * 2 * 67, 67, 2 * 67, 1))
    v = place(inputs["v"], (2 * 50 * 64, 50 * 64, 64, 1), offset=1)
    gaps = place(out, (2 * 37 * 65, 37 * 65, 65, 1), offset=3)
    agree(odd({"q": q, "k": k, "v": v, "out": gaps}), odd.reference(inputs), tolerance=2e-3)
    apart = place(out, (2 * 37 * 128, 37 * 128, 128, 2))
    agree(odd({"q": q, "k": k, "v": v, "out": apart}), odd.reference(inputs), tolerance=2e-3)


def test_zero_strides(odd: Run) -> None:
    """One K and V for all heads and batches, and one query for all rows, each stored once."""
    inputs = {
        name: np.broadcast_to(array[:1, :1, :1] if name == "q" else array[:1, :1], array.shape)
        for name, array in FORWARD.inputs(odd.problem, seed=2).items()
    }
    got = odd(
        {
            "q": (inputs["q"][0, 0, 0].copy(), (0, 0, 0, 1), 0),
            "k": (inputs["k"][0, 0].flatten(), (0, 0, 64, 1), 0),
            "v": (inputs["v"][0, 0].flatten(), (0, 0, 64, 1), 0),
        }
    )
    agree(got, odd.reference(inputs), tolerance=2e-3)


@pytest.mark.parametrize("aligned", [True, False])
def test_nan_beyond_the_valid_rows_does_not_leak(aligned: bool, odd: Run) -> None:
    """Between one head's last row and the next head's first there is NaN; by chunks and by elements."""
    inputs = FORWARD.inputs(odd.problem, seed=4)
    gap = 64 * 150  # elements between heads: room for 150 rows, more than a tile beyond the last
    views = {name: place(array, (2 * gap, gap, 64, 1), offset=int(not aligned)) for name, array in inputs.items()}
    agree(odd(views), odd.reference(inputs), tolerance=2e-3)


def test_large_scores_are_stable(odd: Run) -> None:
    """Scores in the thousands, small ones, and maxima that grow from one tile to the next."""
    inputs = FORWARD.inputs(odd.problem, seed=5)
    inputs["q"] = (inputs["q"] * 100).astype(np.float16)
    inputs["q"][0, 1] *= np.float16(1e-5)
    inputs["k"][1] *= np.linspace(0.1, 4, 50, dtype=np.float16)[:, None]
    views = {name: packed(array) for name, array in inputs.items()}
    agree(odd(views), odd.reference(inputs), tolerance=3e-3)


def test_repeated_runs_agree_to_the_bit(odd: Run) -> None:
    views = {name: packed(array) for name, array in FORWARD.inputs(odd.problem, seed=7).items()}
    first, second = odd(views), odd(views)
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


CLEAN: tuple[dict[str, Any], ...] = (
    {},
    {"STAGES": 1, "REVERSE": True, "Q_IN_REGISTERS": False},
    {"STAGES": 3, "BLOCK_M": 64, "WARPS": 2, "BLOCK_N": 32, "SWIZZLE": False},
    {"OVERLAP": 32},
    {"OVERLAP": 16, "BLOCK_M": 64, "BLOCK_N": 32, "PACK_HEADS": True, "SPLIT": 4},
)


@pytest.mark.parametrize(
    "changed", CLEAN, ids=["default", "one stage", "three stages, padded", "overlap", "packed, split"]
)
def test_no_races_and_no_bank_conflicts(changed: Config, cache: BuildCache) -> None:
    """Every access of every thread is watched: races, bounds, copies not waited for, passes through shared memory."""
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=200, dtype="fp16", layout="bhtd")
    source = render(FAMILY, problem, {**FAMILY.defaults, **changed}, SPEC)
    artifact = build_emulator(source, cache, traced=True)
    images = {name: array.reshape(-1) for name, array in FORWARD.inputs(problem, seed=1).items()}
    trace = trace_plan(artifact, source.plan, images, FORWARD.tensors(problem), blocks=None)
    assert [str(found) for found in trace.findings] == []
    lines = [line for kernel in trace.kernels for line in kernel.lines]
    for operation in ("matrix load", "async copy", "shared load", "shared store"):
        counted = [line for line in lines if line.operation == operation]
        assert counted
        assert sum(line.conflicts for line in counted) == 0, operation
