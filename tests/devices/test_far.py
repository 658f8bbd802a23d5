"""Runs with offsets beyond 2^31 elements: products in 32 bits are told, right ones pass; gaps take no memory."""

import resource

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.devices.emulated import CpuDevice
from autotune.devices.far import complaint_far_away
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.user_op import CustomOp
from autotune.gpus.known import gpu
from autotune.ops import registry
from autotune.ops.expected import expect
from autotune.ops.registry import get_op, register
from tests.devices.test_planted import Planted, forward, plant
from tests.small_templates import MakeTemplate

MISTAKES = {
    "rows": Planted("result[query * out.stride[2]", "result[int(query * out.stride[2])"),
    "heads": Planted("b * tensor.stride[0] + h * tensor.stride[1]", "b * tensor.stride[0] + int(h * tensor.stride[1])"),
    "columns": Planted("col * col_stride", "int(col * col_stride)"),
}


def complaint(source: KernelSource, cache: BuildCache) -> str:
    op = get_op("forward")
    device = CpuDevice(gpu("h200"), threads=2)
    return complaint_far_away(device, op, expect(op, source.problem, 3), build_emulator(source, cache), source.plan)


def test_right_ones_pass(cache: BuildCache) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert complaint(forward(), cache) == ""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB; addresses are some TiB


@pytest.mark.parametrize("mistake", MISTAKES)
def test_products_in_32_bits_are_told(mistake: str, cache: BuildCache) -> None:
    said = complaint(plant(forward(), MISTAKES[mistake]), cache)
    assert said.startswith("with columns beyond 2^31" if mistake == "columns" else "with offsets beyond 2^31")


FRONT = """summary = "whole numbers"
op = "floors"
[problem]
rows = 4
cols = 32
[tensors]
x = { shape = ["rows", "cols"], role = "input" }
n = { shape = ["rows", "cols"], dtype = "int32", role = "output" }
s = { shape = ["cols"], dtype = "uint8", role = "inout" }
[[launch]]
kernel = "floors"
grid = ["rows"]
block = ["cols"]
args = ["x.view", "n.view", "s"]
"""
BODY = """#include "common/view.cuh"
extern "C" __global__ void floors(View<const float, 2> x, View<int, 2> n, unsigned char* s)
{
    const int row = blockIdx.x, col = threadIdx.x;
    const float value = x.data[row * x.stride[0] + col * x.stride[1]];
    n.data[row * n.stride[0] + col * n.stride[1]] = static_cast<int>(floorf(value));
    if (row == 0) s[col] += 1;
}
"""


def test_whole_numbers_and_tensors_in_place(
    make_template: MakeTemplate, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_OPS", dict(registry._OPS))
    template = make_template(FRONT, BODY, name="floors")
    op = register(
        CustomOp(
            template, lambda problem, inputs: {"n": np.floor(inputs["x"]), "s": inputs["s"] + 1},
            lambda problem, seed: {"s": np.arange(32)},
        )
    )  # fmt: skip
    source = render(template, op.problem(), {}, gpu("h200"))
    device, expected = CpuDevice(gpu("h200"), threads=2), expect(op, source.problem, 3)
    assert complaint_far_away(device, op, expected, build_emulator(source, cache), source.plan) == ""
    narrow = BODY.replace("row * n.stride[0]", "int(row * n.stride[0])")
    wrong = render(make_template(FRONT, narrow, name="floors"), op.problem(), {}, gpu("h200"))
    said = complaint_far_away(device, op, expected, build_emulator(wrong, cache), wrong.plan)
    assert said.startswith("with offsets beyond 2^31")
