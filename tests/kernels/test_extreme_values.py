"""Every attention family on numbers that leave the usual range: huge scores, gradients that overflow on the way, and
NaN and infinity where a row does not look."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import numpy_dtype
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.devices.emulated import CpuDevice
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.ops.expected import storage_images, tensor_view
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC, verdict

Arrays = dict[str, NDArray[Any]]

RELATIVE = {"fp16": 2e-3, "bf16": 1.6e-2, "fp32": 2e-5}
HUGE = {
    "fp16": (17.0, 300.0, 1000.0, 3000.0, 6832.0, 10000.0, 30000.0),
    "bf16": (17.0, 300.0, 1000.0, 30000.0, 133120.0, 1e10, 1e18, 1e25),
    "fp32": (17.0, 300.0, 1000.0, 30000.0, 133120.0, 1e10, 1e18, 1e25),
}
"""Values of q and k; the last ones of bf16 and fp32 have scores beyond fp32's range."""


def _families(op: str) -> list[Any]:
    problem = get_op(op).problem(HS=64)
    return [
        pytest.param(template, dtype, id=f"{template.name}-{dtype}")
        for template in builtin_templates(op)
        for dtype in ("fp16", "bf16", "fp32")
        if template.why_unsupported(problem.replace(dtype=dtype), SPEC) is None
    ]


each_forward = pytest.mark.parametrize(("family", "dtype"), _families("forward"))
each_backward = pytest.mark.parametrize(("family", "dtype"), _families("backward"))


def default(family: Template, problem: Problem) -> dict[str, Value]:
    return dict(Space(family, problem, SPEC).default())


def some_configs(family: Template, problem: Problem) -> list[dict[str, Value]]:
    """The default and two others: how far something leaks depends on tiles."""
    space, random = Space(family, problem, SPEC), np.random.default_rng(11)
    return [dict(space.default()), *(dict(space.sample(random)) for _ in range(2))]


def run(
    family: Template, problem: Problem, config: Config, inputs: Mapping[str, NDArray[Any]], cache: BuildCache
) -> Arrays:
    """The outputs, in float64."""
    source, tensors = render(family, problem, config, SPEC), get_op(problem.op).tensors(problem)
    device = CpuDevice(SPEC, threads=2)
    try:
        device.allocate(source.plan.buffers)
        for buffer in source.plan.buffers:
            device.poison(buffer.name)
        for name, image in storage_images(tensors, inputs).items():
            device.upload(name, image)
        program = device.load(build_emulator(source, cache), source.plan)
        device.run(program, source.plan)
        program.close()
        outputs = [tensor for tensor in tensors if tensor.role == "output"]
        return {t.name: tensor_view(device.download(t.storage), t).astype(np.float64) for t in outputs}
    finally:
        device.close()


def agree(got: Arrays, expected: Arrays, dtype: str, where: Any = ...) -> None:
    """To the dtype's precision of the largest finite value, infinities and NaN at the same places."""
    for name, value in expected.items():
        held = value[where] if name == "lse" else value.astype(numpy_dtype(dtype)).astype(np.float64)[where]
        finite = np.abs(held[np.isfinite(held)]).max(initial=0.0)
        np.testing.assert_allclose(
            got[name][where], held, rtol=RELATIVE[dtype], atol=RELATIVE[dtype] * finite, err_msg=name
        )


def _one_key(dtype: str, rows: int = 1) -> tuple[dict[str, Any], Arrays]:
    """A batch for every huge value; all queries see the one key."""
    fields = {
        "B": len(HUGE[dtype]),
        "NH": 1,
        "NH_kv": 1,
        "T": rows,
        "T_kv": 1,
        "HS": 64,
        "dtype": dtype,
        "causal": False,
    }
    sizes = np.array(HUGE[dtype]).reshape(-1, 1, 1, 1)
    random = np.random.default_rng(5)
    kind = numpy_dtype(dtype)
    return fields, {
        "q": np.broadcast_to(sizes, (len(sizes), 1, rows, 64)).astype(kind),
        "k": np.broadcast_to(sizes, (len(sizes), 1, 1, 64)).astype(kind),
        "v": random.standard_normal((len(sizes), 1, 1, 64)).astype(kind),
        "dout": random.standard_normal((len(sizes), 1, rows, 64)).astype(kind),
    }


@each_forward
def test_one_key_gives_its_value_whatever_the_score(family: Template, dtype: str, cache: BuildCache) -> None:
    fields, inputs = _one_key(dtype)
    op = get_op("forward")
    problem = op.problem(**fields)
    inputs.pop("dout")
    got = run(family, problem, default(family, problem), inputs, cache)
    value = np.broadcast_to(inputs["v"], got["out"].shape).astype(np.float64)
    np.testing.assert_allclose(got["out"], value, rtol=4e-6 if dtype == "fp32" else 0)
    with np.errstate(over="ignore"):
        exact = op.reference(problem, inputs)["lse"].astype(np.float32)
    np.testing.assert_allclose(got["lse"].astype(np.float32), exact, rtol=2e-6)


@each_forward
def test_large_scores_of_many_keys(family: Template, dtype: str, cache: BuildCache) -> None:
    """Equal and unequal ones, of either sign; whole numbers, so that products are exact."""
    op = get_op("forward")
    problem = op.problem(B=1, NH=2, NH_kv=1, T=33, T_kv=50, HS=64, dtype=dtype, causal=True)
    inputs = op.inputs(problem, seed=3)
    random = np.random.default_rng(4)
    for name in ("q", "k"):
        inputs[name] = (random.integers(-4, 5, inputs[name].shape) * 64).astype(numpy_dtype(dtype))
    inputs["q"][0, 1] *= inputs["q"].dtype.type(16)
    inputs["k"][0, 0, 5:9] = inputs["k"][0, 0, 5]
    for config in some_configs(family, problem):
        agree(run(family, problem, config, inputs, cache), op.reference(problem, inputs), dtype)


@each_backward
def test_one_key_has_all_the_weight(family: Template, dtype: str, cache: BuildCache) -> None:
    """dV is the sum of dO whatever the score, as far as the log-sum-exp can hold it."""
    fields, inputs = _one_key(dtype, rows=5)
    op = get_op("backward")
    problem = op.problem(**fields)
    forward = get_op("forward").reference(get_op("forward").problem(**fields), inputs)
    inputs["out"] = np.broadcast_to(inputs["v"], inputs["q"].shape).copy()
    with np.errstate(over="ignore"):
        inputs["lse"] = forward["lse"].astype(np.float32)
    kept = (inputs["lse"] == forward["lse"]).all(axis=(1, 2))  # in others there is more in the rounding than in the sum
    for config in some_configs(family, problem):
        got = run(family, problem, config, inputs, cache)
        total = inputs["dout"].astype(np.float64).sum(axis=2, keepdims=True)
        np.testing.assert_allclose(got["dv"][kept], total[kept], rtol=RELATIVE[dtype], atol=RELATIVE[dtype])
        assert all(np.isfinite(array).all() for array in got.values())


@each_backward
def test_gradients_that_overflow_on_the_way(family: Template, dtype: str, cache: BuildCache) -> None:
    """dS and its sums leave the range of fp16; what the result can hold is right, the rest infinite, nothing is NaN."""
    op = get_op("backward")
    for sizes in ((0.01, 100.0), (0.02, 3000.0), (1.0, 60000.0)):
        problem = op.problem(B=1, NH=2, NH_kv=1, T=2, T_kv=2, HS=64, dtype=dtype, causal=False)
        inputs = op.inputs(problem, seed=6)
        random = np.random.default_rng(7)
        kind = numpy_dtype(dtype)
        small, large = sizes
        for name, size in (("q", small), ("k", small), ("v", large), ("dout", large)):
            signs = random.choice([-1.0, 1.0], inputs[name].shape) if name in "qk" else 1.0
            inputs[name] = (size * signs * random.uniform(0.9, 1.09, inputs[name].shape)).astype(kind)
        inputs["v"][:, :, 0] *= kind.type(0.5)
        forward = get_op("forward")
        saved = forward.reference(forward.problem(**problem.fields), inputs)
        inputs["out"], inputs["lse"] = saved["out"].astype(kind), saved["lse"].astype(np.float32)
        got = run(family, problem, default(family, problem), inputs, cache)
        assert not any(np.isnan(array).any() for array in got.values())
        with np.errstate(over="ignore"):
            agree(got, op.reference(problem, inputs), dtype)


HIDDEN = (np.nan, np.inf, -np.inf)


@each_forward
def test_hidden_keys_do_not_leak(family: Template, dtype: str, cache: BuildCache) -> None:
    op = get_op("forward")
    problem = op.problem(B=2, NH=2, NH_kv=1, T=70, T_kv=90, HS=64, dtype=dtype, causal=True)
    clean = op.inputs(problem, seed=8)
    right = op.reference(problem, clean)
    for turn, config in enumerate(some_configs(family, problem)):
        inputs = {name: array.copy() for name, array in clean.items()}
        inputs["k"][0, 0, 50:], inputs["v"][0, 0, 60:] = HIDDEN[turn], HIDDEN[turn]
        inputs["v"][1, 0, 45 + turn, 7] = HIDDEN[turn]
        got = run(family, problem, config, inputs, cache)
        agree({n: a[:1] for n, a in got.items()}, {n: a[:1, :, :30] for n, a in right.items()}, dtype, np.s_[:, :, :30])
        agree({n: a[1:] for n, a in got.items()}, {n: a[1:] for n, a in right.items()}, dtype, np.s_[:, :, : 25 + turn])
        untouched = np.delete(np.arange(64), 7)
        np.testing.assert_array_equal(np.isfinite(got["out"][1][:, :, untouched]), True)
        np.testing.assert_array_equal(np.isfinite(got["out"][1, :, 25 + turn :, 7]), False)
        np.testing.assert_array_equal(np.isfinite(got["lse"][1]), True)


@each_backward
def test_hidden_positions_do_not_leak(family: Template, dtype: str, cache: BuildCache) -> None:
    op = get_op("backward")
    problem = op.problem(B=1, NH=2, NH_kv=1, T=70, T_kv=90, HS=64, dtype=dtype, causal=True)
    clean = op.inputs(problem, seed=9)
    right = op.reference(problem, clean)
    for turn, config in enumerate(some_configs(family, problem)):
        inputs = {name: array.copy() for name, array in clean.items()}
        inputs["k"][0, 0, 80:], inputs["v"][0, 0, 75:] = HIDDEN[turn], HIDDEN[turn]  # seen from query 55 on
        inputs["q"][0, 1, 10], inputs["dout"][0, 0, 12] = HIDDEN[turn], HIDDEN[turn]  # see keys up to 32
        got = run(family, problem, config, inputs, cache)
        rows = np.delete(np.arange(55), [10, 12])
        for name, seen in (("dq", rows), ("dk", np.arange(33, 75)), ("dv", np.arange(33, 75))):
            agree({name: got[name][:, :, seen]}, {name: right[name][:, :, seen]}, dtype)
        whole = op.reference(problem, inputs)
        for name in whole:
            np.testing.assert_array_equal(np.isnan(got[name]), np.isnan(whole[name]), err_msg=name)


@each_backward
def test_hidden_positions_of_wide_heads(family: Template, dtype: str, cache: BuildCache) -> None:
    """Where accumulators fill the registers, another kernel may have the rows that are computed again."""
    problem = get_op("backward").problem(B=1, NH=2, NH_kv=1, T=40, T_kv=50, HS=256, dtype=dtype, causal=True)
    if family.why_unsupported(problem, SPEC) is not None:
        assert family.name == "flash_tf32x3"
        problem = problem.replace(HS=128)
    found = verdict(family, problem, default(family, problem), cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize("family", builtin_templates("matmul"), ids=lambda family: family.name)
@pytest.mark.parametrize(("mask", "layout"), [("a_lower", "nn"), ("a_upper", "tn")])
def test_what_a_triangle_leaves_out_does_not_leak(family: Template, mask: str, layout: str, cache: BuildCache) -> None:
    op = get_op("matmul")
    problem = op.problem(B=1, NH=2, M=70, N=40, K=90, mask=mask, layout=layout, dtype="fp16")
    inputs = op.inputs(problem, seed=3)
    clean = op.reference(problem, inputs)["c"]
    rows = slice(60, None) if mask == "a_lower" else slice(0, 30)
    inputs["b"][0, 0, rows], inputs["b"][0, 1, rows, 7] = np.nan, np.inf
    untouched = slice(0, 40) if mask == "a_lower" else slice(10, None)
    expected = op.reference(problem, inputs)["c"]
    np.testing.assert_allclose(expected[:, :, untouched], clean[:, :, untouched], rtol=1e-12, atol=1e-12)
    for config in (
        Space(family, problem, SPEC).default(),
        Space(family, problem, SPEC).sample(np.random.default_rng(1)),
    ):
        got = run(family, problem, dict(config), inputs, cache)["c"]
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-2)
