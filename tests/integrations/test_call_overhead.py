"""The benchmark of what calls cost runs without a GPU, all its contenders."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")

from autotune.integrations import torch_kernels
from benchmarks.call_overhead import contenders, host_only, measure


def test_host_only() -> None:
    before = dict(torch_kernels._KERNELS), dict(torch_kernels._READY)
    with host_only():
        called = contenders("cpu")
        times = measure(called, 2, 2, lambda: None)
    assert times.keys() == called.keys()
    assert len(times) == 8
    assert all(0 < us["fastest"] <= us["median"] for us in times.values())
    assert before == (torch_kernels._KERNELS, torch_kernels._READY)  # what launches nothing is known to nobody else
