"""Arrays on a GPU as launch arguments (no GPU needed: only addresses and strides are looked at)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.answers.arrays import DeviceArray, bind, describe, is_on_device
from autotune.core.errors import UsageError
from autotune.core.plan import Launch, LaunchPlan, PointerArg, ScalarArg, TensorMapArg, TensorSpec, ViewArg, Zero


class Interface:
    """Something with `__cuda_array_interface__`."""

    def __init__(self, **fields: Any) -> None:
        self.__cuda_array_interface__ = {"data": (4096, False), "version": 3, **fields}


def test_the_cuda_array_interface() -> None:
    strided = describe(Interface(shape=(2, 3), strides=(24, 4), typestr="<f4"))
    assert strided == DeviceArray(4096, (2, 3), (6, 1), "fp32")
    assert describe(Interface(shape=(2, 3), strides=None, typestr="<f2")) == DeviceArray(4096, (2, 3), (3, 1), "fp16")
    with pytest.raises(UsageError, match="element type <f16 is not supported"):
        describe(Interface(shape=(1,), strides=None, typestr="<f16"))


def test_where_an_array_lies() -> None:
    assert is_on_device(Interface(shape=(1,)))
    assert not is_on_device(np.zeros(3))


TENSORS = {
    "q": TensorSpec("q", (2, 3), (3, 1), "fp16", "input", "qkv"),
    "lse": TensorSpec("lse", (2,), (1,), "fp32", "output", "lse"),
}
PLAN = LaunchPlan(
    (),
    (
        Zero("scratch"),
        Launch(
            "k", (1, 1, 1), (32, 1, 1), 0,
            (
                ViewArg("q", "qkv", 5, "fp16", (3, 1), "input"),
                PointerArg("lse", "lse", 0, "fp32", "output"),
                PointerArg("scratch", "scratch", 0, "fp32", "workspace"),
                ScalarArg("T", "int", 3),
            ),
        ),
    ),
)  # fmt: skip


def test_arguments_take_the_arrays_own_places() -> None:
    arrays = {"q": DeviceArray(1, (2, 3), (0, 0), "fp16"), "lse": DeviceArray(2, (2,), (1,), "fp32")}
    launch = bind(PLAN, TENSORS, arrays).launches[0]
    assert launch.args[0] == ViewArg("q", "q", 0, "fp16", (0, 0), "input")
    assert launch.args[1:] == PLAN.launches[0].args[1:]


def test_tensor_maps_take_the_arrays_own_strides() -> None:
    """Also where an axis is split in two; those of workspaces stay."""
    split = TensorMapArg("q", "qkv", 5, "fp16", (3, 2, 1), (1, 3, 6), (3, 1, 1), 0, "input", ((1, 1), (0, 1), (0, 2)))
    scratch = TensorMapArg("sums", "sums", 0, "fp32", (8,), (1,), (8,), 0, "workspace", ((0, 1),))
    plan = LaunchPlan((), (Launch("k", (1, 1, 1), (32, 1, 1), 0, (split, scratch)),))
    bound = bind(plan, TENSORS, {"q": DeviceArray(1, (2, 3), (40, 1), "fp16")}).launches[0].args
    assert bound == (replace(split, storage="q", offset=0, strides=(1, 40, 80)), scratch)


def test_a_plain_pointer_needs_the_planned_strides() -> None:
    arrays = {"q": DeviceArray(1, (2, 3), (3, 1), "fp16"), "lse": DeviceArray(2, (2,), (2,), "fp32")}
    with pytest.raises(UsageError, match=r"lse has strides \(2,\); this kernel takes it with \(1,\) only"):
        bind(PLAN, TENSORS, arrays)


def test_clearing_an_output_cannot_be_bound() -> None:
    plan = LaunchPlan((), (Zero("lse"), *PLAN.launches))
    arrays = {"q": DeviceArray(1, (2, 3), (3, 1), "fp16"), "lse": DeviceArray(2, (2,), (1,), "fp32")}
    with pytest.raises(UsageError, match="clears lse by itself"):
        bind(plan, TENSORS, arrays)
