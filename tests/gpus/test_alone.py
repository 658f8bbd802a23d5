"""What tests of energy ask first: whether others use the GPU. A library of Python functions stands for NVIDIA's."""

import ctypes
from typing import Any

import pytest

from autotune.gpus.nvml import NOT_SUPPORTED, OK, ManagedGpu
from tests.gpu.alone import others_at_work


class Library:
    """Tells one percentage after the other, the last one for ever."""

    def __init__(self, percentages: list[int], status: int = OK) -> None:
        self.left, self.status, self.asked = iter(percentages), status, 0
        self.last = 0

    def nvmlDeviceGetUtilizationRates(self, handle: object, rates: Any) -> int:  # noqa: N802 - as it is called
        self.asked += 1
        self.last = next(self.left, self.last)
        rates._obj.gpu, rates._obj.memory = self.last, 0
        return self.status

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: object, count: Any, infos: object) -> int:  # noqa: N802
        count._obj.value = 3
        return 7


@pytest.fixture(autouse=True)
def quick_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gpu.alone.time.sleep", lambda seconds: None)


@pytest.mark.parametrize("before", [[0], [100, 60, 0], [1, 0]])
def test_a_gpu_that_comes_to_rest_is_ours(before: list[int]) -> None:
    library = Library(before)
    assert others_at_work(ManagedGpu(library, ctypes.c_void_p())) == ""
    assert library.asked == len(before)


@pytest.mark.parametrize("patience_s", [0.0, 0.01])
def test_one_that_does_not_is_not(patience_s: float) -> None:
    said = others_at_work(ManagedGpu(Library([90, 70]), ctypes.c_void_p()), patience_s)
    assert said.startswith("others use this GPU: it is ")
    assert "with 3 processes on it" in said


def test_nothing_is_said_where_nothing_is_told() -> None:
    assert others_at_work(ManagedGpu(Library([90], NOT_SUPPORTED), ctypes.c_void_p())) == ""
    assert others_at_work(ManagedGpu(object(), ctypes.c_void_p())) == ""
