"""The twin of a problem's tensors: the same values at strides of their own."""

from itertools import product

import numpy as np
import pytest

from autotune.core.dtypes import DTYPES
from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg, TensorMapArg, TensorSpec, ViewArg, Zero
from autotune.devices.twin import FAR, GAPS, LARGEST_BYTES, MISALIGNED, ODD, WAYS, Placement, Twin, make_twin, odd_ones
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

SPEC = gpu("h200")


def twin_of(
    op: str, family: str, placement: Placement = GAPS, **fields: object
) -> tuple[tuple[TensorSpec, ...], LaunchPlan, Twin]:
    problem = get_op(op).problem(**fields)  # type: ignore[arg-type]
    template = find_template(op, family)
    plan = render(template, problem, Space(template, problem, SPEC).default(), SPEC).plan
    tensors = get_op(op).tensors(problem)
    twin = make_twin(plan, tensors, placement)
    assert twin is not None
    return tensors, plan, twin


def elements(tensor: TensorSpec) -> set[int]:
    steps = product(*(range(n) for n in tensor.shape))
    return {tensor.offset + sum(i * stride for i, stride in zip(at, tensor.strides, strict=True)) for at in steps}


@pytest.mark.parametrize("layout", ["bthd", "bhtd", "packed"])
def test_no_two_tensors_share_strides_and_no_two_elements_a_place(layout: str) -> None:
    own, plan, twin = twin_of("backward", "flash_simt", B=2, NH=3, T=5, HS=8, dtype="fp16", layout=layout)
    assert twin.moved
    views = [tensor for tensor in twin.tensors if tensor.name != "lse"]
    by_storage = {(tensor.storage, tensor.strides[:3]) for tensor in views}
    assert len({strides for _, strides in by_storage}) == len(by_storage) == len({tensor.storage for tensor in views})
    for before, after in zip(own, twin.tensors, strict=True):
        assert (before.name, before.shape, before.dtype) == (after.name, after.shape, after.dtype)
        assert len(elements(after)) == np.prod(after.shape)
        for wide, wider in zip(before.strides, after.strides, strict=True):
            assert (wider - wide) * DTYPES[after.dtype].size % 16 == 0  # vectors and TMA may do what they might before
    for storage in {tensor.storage for tensor in twin.tensors}:
        held = [elements(tensor) for tensor in twin.tensors if tensor.storage == storage]
        assert sum(map(len, held)) == len(set.union(*held))
        [buffer] = [buffer for buffer in twin.plan.buffers if buffer.name == storage]
        assert max(map(max, held)) == buffer.elements - 1
    assert not {b.name for b in plan.buffers if b.role != "workspace"} & {b.name for b in twin.plan.buffers}


def test_arguments_follow_and_plain_pointers_stay() -> None:
    own, _, twin = twin_of("backward", "flash_simt", B=2, NH=2, T=5, HS=8, dtype="fp16")
    placed = {tensor.name: tensor for tensor in twin.tensors}
    arguments = [arg for launch in twin.plan.launches for arg in launch.args]
    for arg in arguments:
        if isinstance(arg, ViewArg):
            tensor = placed[arg.name]
            assert (arg.storage, arg.offset, arg.strides) == (tensor.storage, tensor.offset, tensor.strides)
    assert {arg.storage for arg in arguments if isinstance(arg, PointerArg)} >= {"lse (other strides)", "delta"}
    [lse] = [tensor for tensor in own if tensor.name == "lse"]
    assert placed["lse"].strides == lse.strides


def test_tensor_maps_and_zeroed_outputs_follow() -> None:
    shape, strides = (2, 3, 4), (12, 4, 1)
    x, y = (TensorSpec(name, shape, strides, "fp32", role, name) for name, role in (("x", "input"), ("y", "output")))  # type: ignore[arg-type]
    axes = ((2, 1), (1, 1), (0, 1))
    described = TensorMapArg("x", "x", 0, "fp32", (4, 3, 2), (1, 4, 12), (4, 1, 1), 0, "input", axes)
    view = ViewArg("y", "y", 0, "fp32", strides, "output")
    launch = Launch("copy", (1, 1, 1), (32, 1, 1), 0, (described, view))
    buffers = (Buffer("x", "fp32", 24, "input"), Buffer("y", "fp32", 24, "output"))
    twin = make_twin(LaunchPlan(buffers, (Zero("y"), launch)), (x, y))
    assert twin is not None
    there = {tensor.name: tensor for tensor in twin.tensors}
    assert (there["x"].strides, there["y"].strides) == ((28, 8, 1), (44, 12, 1))
    [moved] = twin.plan.launches
    assert isinstance(moved.args[0], TensorMapArg)
    assert moved.args[0].strides == (1, 8, 28)
    assert twin.plan.steps[0] == Zero("y (other strides)")


def test_what_cannot_be_placed_twice_is_left_alone() -> None:
    x = TensorSpec("x", (LARGEST_BYTES,), (1,), "fp16", "input", "x")
    large = LaunchPlan((Buffer("x", "fp16", LARGEST_BYTES, "input"),), ())
    assert make_twin(large, (x,)) is None
    overlapping = TensorSpec("x", (4, 4), (2, 1), "fp16", "input", "x")
    view = ViewArg("x", "x", 0, "fp16", (2, 1), "input")
    launch = Launch("read", (1, 1, 1), (1, 1, 1), 0, (view,))
    twin = make_twin(LaunchPlan((Buffer("x", "fp16", 10, "input"),), (launch,)), (overlapping,))
    assert twin is not None
    assert not twin.moved


def forbids(tensor: TensorSpec) -> str:
    *rows, column = tensor.strides
    if tensor.name == "lse":  # a plain pointer
        return ""
    if column != 1:
        return "columns"
    return "rows" if any(stride % 8 for stride in rows) else "start" if tensor.offset % 8 else ""


@pytest.mark.parametrize("layout", ["bthd", "bhtd", "packed"])
def test_one_tensor_after_the_other_forbids_vectors(layout: str) -> None:
    fields = {"B": 2, "NH": 3, "T": 5, "HS": 8, "dtype": "fp16", "layout": layout}
    ways: dict[str, set[str]] = {}
    for turn in range(len(WAYS)):
        for placement in odd_ones(1, 1, turn)[: 5 if layout == "packed" else 9]:
            _, _, twin = twin_of("backward", "flash_simt", placement, **fields)
            assert len({tensor.storage for tensor in twin.tensors if forbids(tensor)}) <= 1
            for storage in {tensor.storage for tensor in twin.tensors}:
                held = [elements(tensor) for tensor in twin.tensors if tensor.storage == storage]
                assert sum(map(len, held)) == len(set.union(*held))
            for tensor in twin.tensors:
                ways.setdefault(tensor.name, set()).add(forbids(tensor))
    assert all(found == {"", *WAYS} for name, found in ways.items() if name != "lse")


@pytest.mark.parametrize("layout", ["bthd", "bhtd", "packed"])
def test_every_tensor_is_misaligned_by_rows_and_by_its_start(layout: str) -> None:
    """Only the checker sees a vector of 4 or 8 bytes at a place that its size does not divide: x86 reads it."""
    fields = {"B": 2, "NH": 3, "T": 5, "HS": 8, "dtype": "fp16", "layout": layout}
    for placement, way in zip(MISALIGNED, ("rows", "start"), strict=True):
        _, _, twin = twin_of("backward", "flash_simt", placement, **fields)
        assert {forbids(tensor) for tensor in twin.tensors if tensor.name != "lse"} == {way}


def test_there_is_no_twin_for_a_storage_that_there_is_not() -> None:
    tensors, plan, _ = twin_of("forward", "flash_simt", B=1, NH=1, T=5, HS=8)
    assert [make_twin(plan, tensors, placement) is None for placement in odd_ones(1, 1, 0)] == [False] * 5 + [True] * 7


def test_what_has_a_tensor_map_always_allows_vectors() -> None:
    _, _, mapped = twin_of("forward", "flash_wgmma", ODD, B=2, NH=2, T=5, HS=64, dtype="fp16")
    assert not any(map(forbids, mapped.tensors))
    _, _, twin = twin_of("forward", "flash_simt", ODD, B=2, NH=2, T=5, HS=64, dtype="fp16")
    assert all(map(forbids, [tensor for tensor in twin.tensors if tensor.name != "lse"]))


@pytest.mark.parametrize("layout", ["bthd", "bhtd", "packed"])
def test_the_second_half_of_each_axis_is_far_away(layout: str) -> None:
    fields = {"B": 2, "NH": 3, "T": 5, "HS": 8, "dtype": "fp16", "layout": layout}
    for placement, axes in zip(FAR, ((0, 1, 2), (3,)), strict=True):
        _, _, twin = twin_of("forward", "flash_simt", placement, **fields)
        for tensor in twin.tensors:
            assert len(elements(tensor)) == np.prod(tensor.shape)
            if tensor.name != "lse":
                assert all(
                    (n // 2) * tensor.strides[axis] > 2**31 for axis, n in enumerate(tensor.shape) if axis in axes
                )
