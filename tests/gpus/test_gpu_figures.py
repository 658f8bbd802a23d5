"""The table of GPUs: figures that follow from one another agree, and a typo in any cell is found."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from autotune.gpus.known import gpu, gpus
from autotune.gpus.rates import rates_of
from autotune.gpus.sources import PUBLISHED
from autotune.gpus.spec import DeviceSpec
from autotune.report.gpus import page

# Half a digit of what is printed; more where a note in `PUBLISHED` says so.
_FP32_ROUNDING = {"b200": (0.0, 0.6)}
_TENSOR_ROUNDING = {
    "t4": 0.5,
    "a100-40gb": 0.5,
    "a100": 0.5,
    "a10": 0.5,
    "l4": 0.5,
    "rtx3090": 0.5,
    "b200": 5,
}
_BANDWIDTH_ROUNDING = {"h100": 5, "b200": 50}

# As sources print them: L2 in KB, memory in GB.
_L2_KB = {
    "t4": 4096, "a100-40gb": 40960, "a100": 40960, "a10": 6144, "l4": 49152, "rtx3090": 6144,
    "rtx4090": 73728, "h100": 51200, "h200": 61440, "b200": 129536, "rtx5090": 98304,
}  # fmt: skip
_MEMORY_GB = {
    "t4": 16, "a100-40gb": 40, "a100": 80, "a10": 24, "l4": 24, "rtx3090": 24, "rtx4090": 24, "h100": 80,
    "h200": 141, "b200": 180, "rtx5090": 32,
}  # fmt: skip

# The Programming Guide's table: KB of shared memory an SM and a block, threads and blocks an SM.
_LIMITS = {
    70: (96, 96, 2048, 32), 75: (64, 64, 1024, 16), 80: (164, 163, 2048, 32), 86: (100, 99, 1536, 16),
    89: (100, 99, 1536, 24), 90: (228, 227, 2048, 32), 100: (228, 227, 2048, 32), 120: (100, 99, 1536, 24),
}  # fmt: skip

_CELLS = (
    "sm_count", "clock_mhz", "bandwidth_gbs", "fp32_tflops", "tensor_tflops", "l2_bytes", "memory_bytes",
    "shared_memory_per_sm", "max_shared_memory", "max_threads_per_sm", "max_blocks_per_sm",
)  # fmt: skip


def _misfits(spec: DeviceSpec) -> Iterator[str]:
    """Figures that do not follow from the others, and limits that are not those of the compute capability."""
    published = PUBLISHED[spec.name]
    lanes = 64 if spec.compute_capability <= 80 else 128
    if spec.sm_count * lanes != published.fp32_cores:
        yield "SMs"
    fp32 = 2e-6 * published.fp32_cores * spec.clock_mhz
    least, most = _FP32_ROUNDING.get(spec.name, (-0.051, 0.051))
    if not least <= spec.fp32_tflops - fp32 <= most:
        yield f"fp32 rate: {fp32:.2f}"
    tensor = 1e-6 * spec.sm_count * published.tensor_flops * published.tensor_mhz
    if abs(tensor - spec.tensor_tflops) > _TENSOR_ROUNDING.get(spec.name, 0.051):
        yield f"tensor rate: {tensor:.2f}"
    bandwidth = published.bus_bits / 8 * published.pin_gbits
    if abs(bandwidth - spec.bandwidth_gbs) > _BANDWIDTH_ROUNDING.get(spec.name, 0.5):
        yield f"bandwidth: {bandwidth:.1f}"
    if (spec.l2_bytes, spec.memory_bytes) != (_L2_KB[spec.name] * 2**10, _MEMORY_GB[spec.name] * 2**30):
        yield "L2 or memory"
    sm_kb, block_kb, threads, blocks = _LIMITS[spec.compute_capability]
    if (spec.shared_memory_per_sm, spec.max_shared_memory) != (sm_kb * 1024, block_kb * 1024):
        yield "shared memory"
    if (spec.max_threads_per_sm, spec.max_blocks_per_sm) != (threads, blocks):
        yield "threads or blocks"


@pytest.mark.parametrize("name", [spec.name for spec in gpus()])
def test_figures_follow_from_one_another(name: str) -> None:
    assert list(_misfits(gpu(name))) == []


@pytest.mark.parametrize("cell", _CELLS)
@pytest.mark.parametrize("name", [spec.name for spec in gpus()])
def test_a_typo_in_any_cell_is_found(name: str, cell: str) -> None:
    """By two per cent, which no rounding explains; small counts by one."""
    spec = gpu(name)
    for sign in (1, -1):
        changes: dict[str, Any] = {cell: getattr(spec, cell) + sign * _step(getattr(spec, cell))}
        assert list(_misfits(replace(spec, **changes))), changes


def _step(value: float) -> float:
    return max(1, value // 50) if isinstance(value, int) else 0.02 * value


def test_every_model_says_where_its_figures_are_published() -> None:
    assert list(PUBLISHED) == [spec.name for spec in gpus()]
    assert all(published.source for published in PUBLISHED.values())


def test_the_page_says_what_was_not_compared() -> None:
    text = page()
    for published in PUBLISHED.values():
        assert published.uncompared in text
        assert published.note in text
    assert "latency of device memory on Volta and Turing" in text


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("a100", 78), ("rtx3090", 35.6), ("rtx4090", 82.6), ("h100", 133.8),
        ("rtx5090", 104.8),
    ],
)  # fmt: skip
def test_half_precision_lanes_give_the_published_rate_without_tensor_cores(name: str, tflops: float) -> None:
    spec = gpu(name)
    assert 2e-6 * rates_of(spec).fp16 * spec.sm_count * spec.clock_mhz == pytest.approx(tflops, rel=0.005)


def test_hopper_tensor_products_a_clock_give_its_published_peak() -> None:
    assert 2 * rates_of(gpu("h200")).tensor == PUBLISHED["h200"].tensor_flops
    assert rates_of(gpu("a100")).tensor == 0


def test_what_mma_sync_reaches_of_sm_100_is_the_products_of_sm_80() -> None:
    share = rates_of(gpu("b200")).mma_share
    assert share * PUBLISHED["b200"].tensor_flops == PUBLISHED["a100"].tensor_flops


def test_published_bytes_a_clock_of_l2() -> None:
    assert [rates_of(gpu(name)).l2_bytes for name in ("a100", "h100")] == [5120, 5120]
    turing = gpu("t4")
    assert rates_of(turing).l2_bytes == turing.sm_count * rates_of(turing).port_bytes / 2
    assert rates_of(gpu("rtx4090")).l2_bytes == 128 * 64


def test_measured_latencies_since_ampere() -> None:
    """Luo et al. 2024, table IV: A100 and H800."""
    rates = rates_of(gpu("h100"))
    assert rates == replace(rates_of(gpu("a100")), tensor=2048, mma_share=0.62)
    assert rates.shared_latency == 29
    assert 261.5 < rates.l2_latency <= 265
    assert 466.3 < rates.dram_latency <= 480
