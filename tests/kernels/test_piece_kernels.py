"""What every family of products and softmaxes must get right beside the cases: strides, NaN, tf32."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.plan import Arg, LaunchPlan, ViewArg
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.ops.expected import expect, tensor_view
from autotune.ops.registry import get_op
from tests.every_family import each_family_of, families_of, name_of, supported
from tests.kernels.attention_cases import SPEC, verdict
from tests.kernels.awkward_cases import TF32_PRODUCTS

MMA = find_template("matmul", "mma")
ROW_OPS = ("softmax", "softmax_backward")


TOLERANCE = {"fp32": 1e-4, "fp16": 2e-3, "bf16": 2e-2}
each_product = each_family_of("matmul")
each_row_family = each_family_of(*ROW_OPS)


def sampled(family: Template, problem: Problem, seed: int) -> dict[str, Value]:
    return dict(Space(family, problem, SPEC).sample(np.random.default_rng(seed)))


def right(family: Template, problem: Problem, config: dict[str, Value], cache: BuildCache) -> None:
    found = verdict(family, problem, config, cache)
    assert (found.outcome, found.message) == (Outcome.OK, ""), config


def product(M: int, N: int, K: int, **fields: Any) -> dict[str, Value]:
    return {"B": 1, "NH": 2, "M": M, "N": N, "K": K, **fields}


@pytest.mark.parametrize("fields", TF32_PRODUCTS[:-1], ids=lambda f: "-".join(map(str, f.values())))
def test_products_in_tf32(fields: dict[str, Value], cache: BuildCache) -> None:
    """Right by the bound of tf32, which is not that of fp32: such a product cannot win where it was not allowed."""
    problem = get_op("matmul").problem(**fields)
    config = sampled(MMA, problem, seed=problem.integer("K"))
    right(MMA, problem, config, cache)
    full = problem.replace(arithmetic="full")
    assert MMA.why_unsupported(full, SPEC) == "it needs dtype in ['fp16', 'bf16'] or arithmetic == 'tf32'"
    source = render(MMA, problem, config, SPEC)
    device = CpuDevice(SPEC, threads=2)
    strict = Bench(device, get_op("matmul"), expect(get_op("matmul"), full, seed=1))
    assert strict.evaluate(build_emulator(source, cache), source.plan, None).outcome is Outcome.WRONG_RESULT
    device.close()


def test_nan_and_infinity_pass_through_tf32(cache: BuildCache) -> None:
    op = get_op("matmul")
    problem = op.problem(**product(32, 32, 16, NH=1, dtype="fp32", layout="nn", arithmetic="tf32"))
    inputs = op.inputs(problem, seed=2)
    inputs["a"][0, 0, 3, 2] = np.frombuffer(b"\xff\xff\xff\x7f", np.float32)[0]  # a NaN that rounding up would wrap
    inputs["a"][0, 0, 5, 1], inputs["b"][0, 0, 1] = np.inf, 1.0
    layouts = {t.name: (t.strides, 0) for t in op.tensors(problem)}
    got = run_placed(MMA, problem, inputs, layouts, cache)[0, 0]
    assert np.isnan(got[3]).all()
    assert (got[5] == np.inf).all()
    assert np.isfinite(np.delete(got, (3, 5), axis=0)).all()


def rows(T: int, T_kv: int, **fields: Any) -> dict[str, Value]:
    return {"B": 1, "NH": 2, "T": T, "T_kv": T_kv, **fields}


@pytest.mark.parametrize("family", [f for f in families_of(*ROW_OPS) if "element" not in f.name], ids=name_of)
def test_a_last_row_and_tile_that_are_cut(family: Template, cache: BuildCache) -> None:
    problem = supported(family, rows(1023, 1024, NH=1, dtype="fp16"), SPEC)
    right(family, problem, dict(Space(family, problem, SPEC).default()), cache)


Layout = tuple[tuple[int, ...], int]
"""Element strides of a tensor in its storage, and its offset."""


def run_placed(
    family: Template, problem: Problem, inputs: dict[str, NDArray[Any]], layouts: dict[str, Layout], cache: BuildCache
) -> NDArray[np.float64]:
    """The output of the default configuration with all tensors placed by `layouts`, NaN between their elements."""
    source = render(family, problem, Space(family, problem, SPEC).default(), SPEC)
    tensors = {
        tensor.name: replace(tensor, strides=layouts[tensor.name][0], offset=layouts[tensor.name][1])
        for tensor in get_op(problem.op).tensors(problem)
    }

    def place(arg: Arg) -> Arg:
        if not isinstance(arg, ViewArg):
            return arg
        return replace(arg, strides=tensors[arg.name].strides, offset=tensors[arg.name].offset)

    sizes = {
        name: t.offset + 1 + sum((n - 1) * s for n, s in zip(t.shape, t.strides, strict=True))
        for name, t in tensors.items()
    }
    buffers = tuple(replace(buffer, elements=sizes[buffer.name]) for buffer in source.plan.buffers)
    plan = LaunchPlan(buffers, tuple(replace(s, args=tuple(map(place, s.args))) for s in source.plan.launches))
    device = CpuDevice(SPEC, threads=2)
    device.allocate(buffers)
    for buffer in buffers:
        device.poison(buffer.name)
        if buffer.name in inputs:
            storage = device.download(buffer.name)
            tensor_view(storage, tensors[buffer.name])[...] = inputs[buffer.name]
            device.upload(buffer.name, storage)
    program = device.load(build_emulator(source, cache), plan)
    device.run(program, plan)
    (output,) = (tensor for tensor in tensors.values() if tensor.role == "output")
    result = tensor_view(device.download(output.name), output).astype(np.float64)
    program.close()
    device.close()
    return result


def strided(shape: tuple[int, ...], inner: int, gap: int, offset: int) -> Layout:
    """Rows `gap` elements apart beyond their length, elements `inner` apart."""
    _, heads, n, m = shape
    row = m * inner + gap
    return (heads * n * row, n * row, row, inner), offset


@each_product
@pytest.mark.parametrize(("inner", "gap", "offset"), [(1, 24, 8), (2, 0, 0), (1, 3, 1)])
def test_strided_products(family: Template, inner: int, gap: int, offset: int, cache: BuildCache) -> None:
    """Aligned rows with NaN between them, elements apart, and rows that no vector can read."""
    op = get_op("matmul")
    problem = supported(family, product(70, 88, 40, dtype="fp16", layout="nn", alpha=0.25), SPEC)
    inputs = op.inputs(problem, seed=2)
    layouts = {t.name: strided(t.shape, inner, gap, offset) for t in op.tensors(problem)}
    got = run_placed(family, problem, inputs, layouts, cache)
    tolerance = TOLERANCE[problem.dtype]
    np.testing.assert_allclose(got, op.reference(problem, inputs)["c"], rtol=tolerance, atol=tolerance)


@each_product
def test_heads_are_multiplied_where_they_lie(family: Template, cache: BuildCache) -> None:
    """(B, T, NH, HS) tensors: the scores of all heads without a permute, and one B for all batches and heads."""
    op = get_op("matmul")
    problem = supported(family, product(50, 70, 64, B=2, NH=3, dtype="fp16", layout="nt", alpha=0.125), SPEC)
    inputs = op.inputs(problem, seed=3)
    inputs["b"] = np.broadcast_to(inputs["b"][:1, :1], inputs["b"].shape)
    layouts: dict[str, Layout] = {
        "a": ((50 * 192, 64, 192, 1), 0),
        "b": ((0, 0, 1, 64), 0),
        "c": ((3 * 50 * 70, 50 * 70, 70, 1), 0),
    }
    got = run_placed(family, problem, inputs, layouts, cache)
    tolerance = TOLERANCE[problem.dtype]
    np.testing.assert_allclose(got, op.reference(problem, inputs)["c"], rtol=tolerance, atol=tolerance)


@each_row_family
@pytest.mark.parametrize(("inner", "gap", "offset"), [(1, 16, 8), (2, 1, 1)])
def test_strided_rows_with_nan_wherever_nothing_is_seen(
    family: Template, inner: int, gap: int, offset: int, cache: BuildCache
) -> None:
    op = get_op(family.op)
    problem = supported(family, rows(40, 72, dtype="fp32"), SPEC)
    inputs = op.inputs(problem, seed=4)
    hidden = np.arange(72)[None, :] > np.arange(40)[:, None] + 32
    for array in inputs.values():
        array[..., hidden] = np.nan
    layouts = {t.name: strided(t.shape, inner, gap, offset) for t in op.tensors(problem)}
    got = run_placed(family, problem, inputs, layouts, cache)
    (expected,) = op.reference(problem, inputs).values()
    assert (got[..., hidden] == 0).all()
    tolerance = TOLERANCE[problem.dtype]
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance / 100)


@each_row_family
def test_nan_in_a_row_stays_in_it(family: Template, cache: BuildCache) -> None:
    """A query that sees a NaN gives NaN for the keys it sees and 0 for the others; other rows are untouched."""
    op = get_op(family.op)
    problem = supported(family, rows(40, 72, dtype="fp32"), SPEC)
    inputs = op.inputs(problem, seed=5)
    next(iter(inputs.values()))[0, 1, 20, 3] = np.nan
    layouts = {t.name: (t.strides, 0) for t in op.tensors(problem)}
    got = run_placed(family, problem, inputs, layouts, cache)[0]
    assert np.isnan(got[1, 20, :53]).all()
    assert (got[1, 20, 53:] == 0).all()
    assert np.isfinite(got[0]).all()
    assert np.isfinite(np.delete(got[1], 20, axis=0)).all()
