"""Families with products of their own: what they are judged by, and what is said of them."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.core.errors import TemplateError
from autotune.families.planning import make_plan
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template
from autotune.families.traits import traits_of
from autotune.gpus.known import gpu
from autotune.ops.expected import expect
from autotune.ops.registry import get_op
from autotune.ops.tf32_products import multiply_tf32x3, truncated_to_tf32
from tests.small_templates import MakeTemplate

EPSILON = 2.0**-23
H200 = gpu("h200")


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_three_products_are_nearly_one_of_fp32() -> None:
    a, b = normal(1, 64, 128), normal(2, 128, 32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    plain, three = (np.abs(product - exact).max() for product in (a @ b, multiply_tf32x3(a, b)))
    one = np.abs(truncated_to_tf32(a) @ truncated_to_tf32(b) - exact).max()
    assert 0.1 * plain < three < 3 * plain
    assert one > 300 * three


def test_products_that_need_no_rounding_are_exact() -> None:
    a, b = (np.random.default_rng(seed).integers(-1000, 1001, (16, 16)).astype(np.float32) for seed in (3, 4))
    np.testing.assert_array_equal(multiply_tf32x3(a, b), a.astype(np.float64) @ b.astype(np.float64))
    third = np.float32(1) / 3
    assert multiply_tf32x3(np.full((1, 1), third), np.ones((1, 1), np.float32))[0, 0] == pytest.approx(
        third, abs=EPSILON
    )


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_bound_is_hardly_wider_than_that_of_plain_fp32(op: str, causal: bool) -> None:
    problem = get_op(op).problem(B=1, NH=1, T=150, T_kv=200, HS=64, dtype="fp32", causal=causal)
    (unit,) = expect(get_op(op), problem, seed=1).units
    assert unit.bounds.keys() == {"full", "tf32x3"}
    assert unit.bound is unit.bounds["full"]
    for name, plain in unit.bounds["full"].items():
        bound = np.asarray(unit.bounds["tf32x3"][name])  # of each row
        assert bound.max() > 0.99 * np.max(plain), name
        assert (bound < 2 * np.asarray(plain)).all(), name


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_attention_with_single_products_is_far_outside_it(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = get_op(op).problem(B=1, NH=1, T=150, T_kv=200, HS=64, dtype="fp32", causal=False)
    (unit,) = expect(get_op(op), problem, seed=1).units

    def single(a: NDArray[Any], b: NDArray[Any], *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        product: NDArray[np.float32] = np.matmul(truncated_to_tf32(a), truncated_to_tf32(b), out=out)
        return product

    monkeypatch.setattr("autotune.ops.attention_reference._PRODUCTS", {"full": np.matmul, "tf32x3": single})
    got = get_op(op).approximate(problem, get_op(op).inputs(problem, 1), "tf32x3")
    for name, reference in unit.reference.items():
        assert (np.abs(got[name] - reference) / unit.bounds["tf32x3"][name]).max() > 10, name


def test_16_bit_problems_have_one_bound() -> None:
    problem = get_op("forward").problem(B=1, NH=1, T=20, HS=32, dtype="fp16")
    assert expect(get_op("forward"), problem, seed=1).units[0].bounds.keys() == {"full"}


def test_plans_name_the_arithmetic() -> None:
    problem = get_op("forward").problem(dtype="fp32")
    for name, arithmetic in (("flash_simt", "full"), ("flash_tf32x3", "tf32x3")):
        family = find_template("forward", name)
        space = Space(family, problem, H200)
        config = space.default()
        plan = make_plan(family, get_op("forward"), problem, space.namespace(config))
        assert plan.arithmetic == arithmetic
        found = traits_of(family, problem, config, H200)
        assert found.to_json() == {"arithmetic": arithmetic, "deterministic": True}


def test_what_people_are_told() -> None:
    problem = get_op("backward").problem(dtype="fp16")
    family = find_template("backward", "flash_mma")
    default = Space(family, problem, H200).default()
    separate, atomic = (
        dict(traits_of(family, problem, {**default, "DQ_ACCUMULATE": way}, H200).rows())
        for way in ("separate", "atomic")
    )
    assert separate == {"deterministic": "yes"}
    assert atomic == {"deterministic": "no: sums are added up in an order left to chance"}
    family = find_template("forward", "flash_tf32x3")
    problem = get_op("forward").problem(dtype="fp32")
    rows = dict(traits_of(family, problem, Space(family, problem, H200).default(), H200).rows())
    assert rows["arithmetic"].startswith("tf32x3 (3xTF32, ")


def test_only_families_for_fp32_declare_three_products() -> None:
    for op in ("forward", "backward"):
        for family in builtin_templates(op):
            if family.front.arithmetic == "tf32x3":
                assert family.why_unsupported(get_op(op).problem(dtype="fp16"), H200) is not None
                assert family.why_unsupported(get_op(op).problem(dtype="fp32"), H200) is None


def test_unknown_arithmetic_is_refused(make_template: MakeTemplate) -> None:
    with pytest.raises(TemplateError, match="arithmetic='bf16x9' is not one of full, tf32x3"):
        make_template(old='source = "none"', new='arithmetic = "bf16x9"')


def test_an_op_that_cannot_judge_it_says_so(make_template: MakeTemplate) -> None:
    family = make_template(old='source = "none"', new='arithmetic = "tf32x3"')
    problem = get_op("forward").problem(dtype="fp16")
    with pytest.raises(TemplateError, match="op 'forward' cannot judge arithmetic='tf32x3'"):
        make_plan(family, get_op("forward"), problem, {})
