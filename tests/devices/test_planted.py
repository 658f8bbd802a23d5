"""Kernels with one mistake planted, verified on the emulator: each is rejected, and the same without it is not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache as remember

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.measurement import Verification
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench, Verdict
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.expected import Expectation, expect
from autotune.ops.registry import get_op

SPEC = gpu("h200")
FORWARD: Mapping[str, Value] = {"B": 2, "NH": 2, "NH_kv": 2, "T": 192, "HS": 64, "dtype": "fp16"}
BACKWARD: Mapping[str, Value] = {"B": 1, "NH": 1, "T": 512, "HS": 32, "dtype": "fp16"}


@dataclass(frozen=True)
class Planted:
    """A text of the source and what stands in its place."""

    right: str
    wrong: str


ATTENTION = {
    "the sum is not rescaled": Planted("sum *= factor;", ""),
    "the output is not rescaled": Planted("float sum = total[d] * factor;", "float sum = total[d];"),
    "weights are those of the maximum before": Planted(
        "- row.origin())", "- (key == 0 ? row.origin() : maxima[first_row + query]))"
    ),
    "the sum is corrected twice": Planted(
        "maxima[first_row + query] = row.maximum;\n            sums",
        "row.sum *= factor;\n            maxima[first_row + query] = row.maximum;\n            sums",
    ),
    "another tensor's rows": Planted("values + key * v.stride[2]", "values + key * k.stride[2]"),
    "another tensor's heads": Planted(
        "matrix_of(v, batch, head / (NH / NH_kv))", "(v.data + batch * k.stride[0] + head * k.stride[1])"
    ),
    "the output's rows are those of q": Planted("result[query * out.stride[2]", "result[query * q.stride[2]"),
    "heads and batches change places": Planted("matrix_of(k, batch, head / (NH / NH_kv))", "matrix_of(k, head, batch)"),
    "a sum is not cleared": Planted("float dot = 0.0f;", "float dot;"),
    "maxima begin at 0": Planted("float largest = minus_infinity();", "float largest = 0.0f;"),
    "the maxima are not cleared": Planted("maxima[first_row + query] = minus_infinity();", ""),
    "one key too few": Planted("scores.keys_seen(query) - key", "scores.keys_seen(query) - (query > 100) - key"),
    "one key too many": Planted(
        "scores.keys_seen(query) - key", "min(T_kv, scores.keys_seen(query) + (query > 100)) - key"
    ),
}

GRADIENTS = {
    "scores are not cleared": Planted("float p[M_TILE][S_COLS] = {};", "float p[M_TILE][S_COLS];"),
    "NaN in odd columns is not computed again": Planted(
        "is_finite(to_float(row[d * stride]));", "(d % 2 || is_finite(to_float(row[d * stride])));"
    ),
    "the last key has no gradients": Planted(
        "part[w] = x[i][j + w];\n            store_row(matrix_of(tensor",
        "part[w] = row == T_kv - 1 ? 0.0f : x[i][j + w];\n            store_row(matrix_of(tensor",
    ),
    "the last query has no gradient": Planted(
        "part[w] = x[i][j + w];\n            store_row(matrix_of(dq",
        "part[w] = row == T - 1 ? 0.0f : x[i][j + w];\n            store_row(matrix_of(dq",
    ),
}


def plant(source: KernelSource, planted: Planted) -> KernelSource:
    """The source with the mistake, wherever its text stands."""
    includes = tuple(replace(i, text=i.text.replace(planted.right, planted.wrong)) for i in source.includes)
    changed = replace(source, body=source.body.replace(planted.right, planted.wrong), includes=includes)
    assert changed.hash != source.hash
    return changed


@remember
def expected(problem: Problem) -> tuple[Expectation, Expectation]:
    op = get_op(problem.op)
    return expect(op, problem, seed=3), expect(op, problem, seed=3, hard=True, hidden_nan=True)


def judge(source: KernelSource, cache: BuildCache, *, deterministic: bool = False) -> Verdict:
    """As the worker of a search does."""
    device = CpuDevice(SPEC, threads=2)
    try:
        bench = Bench(device, get_op(source.problem.op), *expected(source.problem))
        return bench.evaluate(build_emulator(source, cache), source.plan, None, deterministic=deterministic)
    finally:
        device.close()


def forward(**fields: Value) -> KernelSource:
    family, problem = find_template("forward", "minimal_flash"), get_op("forward").problem(**{**FORWARD, **fields})
    return render(family, problem, Space(family, problem, SPEC).default(), SPEC)


def backward(accumulate: str = "separate", **fields: Value) -> KernelSource:
    family, problem = find_template("backward", "flash_simt"), get_op("backward").problem(**{**BACKWARD, **fields})
    space = Space(family, problem, SPEC)
    config = next(c for c in space.configs() if c["DQ_ACCUMULATE"] == accumulate and c["BLOCK_M"] == c["BLOCK_N"] == 64)
    return render(family, problem, config, SPEC)


def assert_right(verdict: Verdict) -> None:
    assert (verdict.outcome, verdict.message) == (Outcome.OK, "")
    assert isinstance(verdict.verification, Verification)
    assert verdict.verification.passed


@pytest.mark.parametrize("mistake", ATTENTION)
def test_a_wrong_forward_is_rejected(mistake: str, cache: BuildCache) -> None:
    verdict = judge(plant(forward(), ATTENTION[mistake]), cache)
    assert verdict.outcome in {Outcome.WRONG_RESULT, Outcome.LAUNCH_ERROR}


@pytest.mark.parametrize("mistake", GRADIENTS)
def test_a_wrong_backward_is_rejected(mistake: str, cache: BuildCache) -> None:
    verdict = judge(plant(backward(), GRADIENTS[mistake]), cache)
    assert verdict.outcome is Outcome.WRONG_RESULT


def test_what_is_computed_again_is_noticed_without_a_mask(cache: BuildCache) -> None:
    """There no position is hidden whose NaN would call for it."""
    right = forward(causal=False)
    batches = Planted("{tensor.stride[0], tensor.stride[1],", "{tensor.stride[1], tensor.stride[1],")
    assert judge(plant(right, batches), cache).outcome is Outcome.WRONG_RESULT
    assert_right(judge(right, cache))


def test_the_same_kernels_without_a_mistake_are_right(cache: BuildCache) -> None:
    assert_right(judge(forward(), cache))
    assert_right(judge(backward(), cache))


def test_who_says_that_repeats_are_identical_is_held_to_it(cache: BuildCache) -> None:
    """dQ that blocks add to comes out otherwise when they run in another order; without the promise that is right."""
    assert_right(judge(backward(), cache, deterministic=True))
    adding = backward("in_place", dtype="fp32")
    assert_right(judge(adding, cache))
    verdict = judge(adding, cache, deterministic=True)
    assert (verdict.outcome, verdict.timing) == (Outcome.WRONG_RESULT, None)
    assert verdict.message == "run again it gives other bits, though its family says that it is deterministic"


def test_who_writes_to_inputs_does_not_spoil_the_next_one(cache: BuildCache) -> None:
    """Not by one of several, nor by those of a second run, which lie elsewhere."""
    right, end, write = (
        forward(),
        "element* const result",
        "if (threadIdx.x == 0) q.data[0] = from_float<element>(9.0f);",
    )
    device = CpuDevice(SPEC, threads=2)
    try:
        bench = Bench(device, get_op("forward"), *expected(right.problem))
        for writes in (write, write + write.replace("q.", "k.")):
            wrong = plant(right, Planted(end, f"{writes} {end}"))
            verdict = bench.evaluate(build_emulator(wrong, cache), wrong.plan, None)
            assert (verdict.outcome, verdict.message) == (Outcome.WRONG_RESULT, "input q was changed")
            assert_right(bench.evaluate(build_emulator(right, cache), right.plan, None))
    finally:
        device.close()
