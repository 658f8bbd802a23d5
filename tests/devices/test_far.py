"""Runs with offsets beyond 2^31 elements: products in 32 bits are told, right ones pass; gaps take no memory."""

import resource

import pytest

from autotune.compilers.cache import BuildCache
from autotune.devices.emulated import CpuDevice
from autotune.devices.far import complaint_far_away
from autotune.emulator.building import build_emulator
from autotune.families.source import KernelSource
from autotune.gpus.known import gpu
from autotune.ops.expected import expect
from autotune.ops.registry import get_op
from tests.devices.test_planted import Planted, forward, plant

MISTAKES = {
    "rows": Planted("result[query * out.stride[2]", "result[int(query * out.stride[2])"),
    "heads": Planted("b * tensor.stride[0] + h * tensor.stride[1]", "b * tensor.stride[0] + int(h * tensor.stride[1])"),
    "columns": Planted("(col + e) * col_stride", "int((col + e) * col_stride)"),
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
