"""The ladders as data: every version exists, is what it says, and its parts make up attention."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.core.candidate import make_candidate
from autotune.core.errors import TemplateError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.narrow import narrowed
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template
from autotune.gpus.known import gpu
from autotune.ladder import parts
from autotune.ladder.climb import ladder_problem
from autotune.ladder.stations import Station, version_problem
from autotune.ladder.versions import BACKWARD, FORWARD, LADDERS, Ladder, Version
from autotune.ops.registry import get_op
from autotune.tuning.choose import choose_families, choose_subject
from autotune.tuning.joint_space import Families

H200 = gpu("h200")
EVERY = [(ladder, version) for ladder in LADDERS.values() for version in ladder.versions]
each_version = pytest.mark.parametrize(("ladder", "version"), EVERY, ids=[f"{a.op}-{v.name}" for a, v in EVERY])


@each_version
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_every_version_has_configurations_that_keep_to_what_is_pinned(
    ladder: Ladder, version: Version, dtype: str
) -> None:
    asked = ladder_problem(ladder, {"dtype": dtype}, emulated=False)
    problem = version_problem(version, asked)
    if problem is None:
        assert (version.element, dtype) in {("16-bit", "fp32"), ("32-bit", "fp16")}
        return
    part = version.own
    station = Station(part, part.problem(problem))
    (template,) = station.subject.templates
    space = Space(template, station.problem, H200)
    assert template.why_unsupported(station.problem, H200) is None
    assert space.size > 0
    full = Space(find_template(station.problem.op, part.family or ""), station.problem, H200)
    rng = np.random.default_rng(0)
    for config in (space.default(), *(space.sample(rng) for _ in range(20))):
        assert full.contains(config)
        for name, value in part.pins.items():
            assert config[name] in (value if isinstance(value, tuple) else (value,))


def pinned(name: str) -> dict[str, object]:
    (version,) = (version for version in BACKWARD.versions if version.name == name)
    return {"family": version.own.family, **version.own.pins}


def test_versions_differ_by_their_idea() -> None:
    alone = {"PARALLEL": "alone", "THREADS": 64, "GRID_MAP": "x=threads,y=others,z=matrix"}  # too slow to be searched
    assert pinned("V2") | alone == pinned("V1")
    assert pinned("V3") | {"COLUMNS": 8} == pinned("V4")
    assert pinned("V4") | {"DIAGONAL": "split"} == pinned("V5")
    assert pinned("V7")["family"] == pinned("V8")["family"] == "row_sum"


def test_the_published_problems_and_times() -> None:
    published = [version.published_ms for version in BACKWARD.versions]
    assert published == [7067.52, 271.53, 14.37, 10.38, 6.03, 2.99, 1.76, 1.76, None, None, None]
    backward, forward = (str(ladder_problem(ladder, {}, emulated=False)) for ladder in (BACKWARD, FORWARD))
    assert backward.startswith("backward B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64")
    assert forward.startswith("forward B=8 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64")
    small = ladder_problem(BACKWARD, {"T": 96, "dtype": "fp32"}, emulated=True)
    assert (small["B"], small["NH"], small["T"], small["T_kv"], small.dtype) == (1, 2, 96, 96, "fp32")


def output(problem: Problem, **inputs: NDArray[Any]) -> NDArray[Any]:
    (result,) = get_op(problem.op).reference(problem, inputs).values()
    return np.asarray(result)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize(("T", "T_kv"), [(7, 7), (5, 9), (9, 5)])
def test_the_parts_make_up_both_passes(causal: bool, group: int, T: int, T_kv: int) -> None:
    """The ops of the parts, chained as a pipeline chains them, give attention and its gradients; heads grouped, too."""
    heads = {"NH": 6, "NH_kv": 6 // group}
    fields: dict[str, Value] = {"B": 2, "T": T, "T_kv": T_kv, "HS": 16, "dtype": "fp32", "causal": causal, **heads}
    forward, backward = get_op("forward").problem(**fields), get_op("backward").problem(**fields)
    given = get_op("backward").inputs(backward, seed=3)
    q, k, v, dout = (given[name].astype(np.float64) for name in ("q", "k", "v", "dout"))
    scores = output(parts.score_product(forward), a=q, b=k.swapaxes(2, 3))
    weights = output(parts.softmax(forward), scores=scores)
    out = output(parts.output_product(forward), a=weights, b=v)
    np.testing.assert_allclose(out, get_op("forward").reference(forward, given)["out"], atol=1e-6)
    d_weights = output(parts.score_product(backward), a=dout, b=v.swapaxes(2, 3))
    d_scores = output(parts.softmax_backward(backward), weights=weights, d_weights=d_weights)
    expected = get_op("backward").reference(backward, given)

    def over_keys(matrices: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """Matrices of a group one below the other, transposed, times the rows likewise."""
        stacked, tall = (x.reshape(2, 6 // group, group * T, -1) for x in (matrices, rows))
        return output(parts.key_product(backward), a=stacked.swapaxes(2, 3), b=tall)

    for name, got in {
        "dv": over_keys(weights, dout),
        "dq": output(parts.output_product(backward), a=d_scores, b=k),
        "dk": over_keys(d_scores, q),
    }.items():
        np.testing.assert_allclose(got, expected[name], atol=1e-5, err_msg=name)


def test_products_in_place_read_attentions_own_layout() -> None:
    asked = get_op("forward").problem(B=2, NH=6, NH_kv=2, T=5, T_kv=9, HS=16, dtype="fp16")
    of = {tensor.name: tensor for tensor in get_op("forward").tensors(asked)}
    a, b, _ = get_op("matmul").tensors(parts.score_product_in_place(asked))
    assert (a.shape, a.strides) == (of["q"].shape, of["q"].strides)
    assert (b.shape[:2], b.strides) == ((2, 2), (*of["k"].strides[:2], of["k"].strides[3], of["k"].strides[2]))
    _, b, c = get_op("matmul").tensors(parts.output_product_in_place(asked))
    assert (b.strides, c.strides) == (of["v"].strides, of["out"].strides)


def test_the_permute_copies_between_orders() -> None:
    op = get_op("permute")
    problem = parts.permute_key(get_op("forward").problem(B=2, NH=3, T=4, T_kv=5, HS=8, dtype="fp16"))
    x, y = op.tensors(problem)
    assert x.shape == y.shape == (2, 3, 5, 8)
    assert (x.strides, y.strides) == ((120, 8, 24, 1), (120, 40, 8, 1))
    assert op.nbytes(problem) == 2 * 2 * 240
    inputs = op.inputs(problem, seed=1)
    np.testing.assert_array_equal(op.reference(problem, inputs)["y"], inputs["x"])
    assert op.emulated(problem.replace(T=4096)).integer("B") == 2
    assert op.emulated(problem.replace(T=4096, B=8, NH=12, HS=256))["B"] == 1


def test_narrowing_keeps_name_and_hash_and_moves_defaults() -> None:
    family = find_template("softmax_backward", "row_sum")
    narrow = narrowed(family, {"LANES": (64, 128), "VEC": 2})
    assert (narrow.name, narrow.hash) == (family.name, family.hash)
    assert {p.name: p.values for p in narrow.parameters}["LANES"] == (64, 128)
    assert narrow.defaults == family.defaults | {"LANES": 64, "VEC": 2}
    with pytest.raises(TemplateError, match="row_sum has no parameter 'LANE'"):
        narrowed(family, {"LANE": 32})
    with pytest.raises(TemplateError, match=r"LANES of row_sum takes .* not 33"):
        narrowed(family, {"LANES": 33})


def test_a_narrowed_family_does_not_own_what_others_have_tried() -> None:
    """Versions of one family are recorded for one problem; a search must not count another's trials as its own."""
    family = find_template("softmax_backward", "warp_per_element")
    problem = get_op("softmax_backward").problem(T=64)
    families = choose_families([narrowed(family, {"UNROLL": 8})], problem, H200)
    config = Space(family, problem, H200).default()
    assert families.has(make_candidate(family.name, family.hash, {**config, "UNROLL": 8}))
    assert not families.has(make_candidate(family.name, family.hash, {**config, "UNROLL": 4}))
    assert not families.has(make_candidate(family.name, "other", {**config, "UNROLL": 8}))


def test_historical_families_are_searched_where_they_are_named() -> None:
    def searched(op: str, *names: str) -> set[str]:
        return {template.name for template in choose_subject(op, names).templates}

    assert searched("softmax_backward") == {"row_sum"}
    assert searched("forward").isdisjoint({"naive", "minimal_flash", "warp_per_query"})
    assert {"flash_simt", "unfused"} <= searched("forward")
    assert searched("forward", "naive") == {"naive"}
    historical = {t.name for op in ("forward", "softmax_backward") for t in builtin_templates(op) if t.front.historical}
    climbed = {version.own.family for ladder in LADDERS.values() for version in ladder.versions}
    assert historical <= climbed


def test_a_lookup_without_an_answer_prefers_what_is_not_historical() -> None:
    from autotune.families.catalogue import Families as Known

    problem = get_op("softmax_backward").problem()
    assert Known(builtin_templates("softmax_backward")).default(problem, H200).template == "row_sum"
    only = Known((find_template("softmax_backward", "block_per_row"),))
    assert only.default(problem, H200).template == "block_per_row"


def test_families_ignore_what_they_do_not_know() -> None:
    assert not Families([]).has(make_candidate("row_sum", "hash", {}))


def test_a_station_is_the_same_for_versions_that_share_it() -> None:
    asked = ladder_problem(FORWARD, {"dtype": "fp16"}, emulated=True)
    v5, v6 = (version for version in FORWARD.versions if version.name in ("V5", "V6"))
    assert Station(v5.own, v5.own.problem(asked)).key == Station(v6.own, v6.own.problem(asked)).key
    other = replace(v6.own, pins={"LANES": 16})
    assert Station(other, other.problem(asked)).key != Station(v6.own, v6.own.problem(asked)).key
