"""What a GPU compares by itself: the tests that its emulated kernels pass, and whole verdicts beside the host's."""

from collections.abc import Iterator
from typing import Any

import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.outcome import Outcome
from autotune.devices.cuda import CudaDevice
from autotune.devices.device_comparison import Making
from autotune.devices.measure import Bench, Verdict
from autotune.devices.protocol import Comparing, TimingBudget
from autotune.families.source import KernelSource
from autotune.ops.registry import get_op
from tests.devices.test_device_comparison import (
    test_of_elements_that_are_equally_near_the_first_is_named,
    test_of_nan_that_is_expected_nothing_is_doubted,
    test_one_changed_bit_is_noticed_wherever_it_is,
    test_one_write_between_the_tensors_is_noticed_wherever_it_is,
    test_one_wrong_element_is_noticed_wherever_it_is,
    test_what_is_right_is_found_as_the_host_finds_it,
    test_what_the_kernels_do_not_take_is_left_to_the_host,
    test_whatever_is_not_right_is_left_to_the_host,
)
from tests.devices.test_planted import ATTENTION, GRADIENTS, backward, expected, forward, plant

__all__ = [
    "test_of_elements_that_are_equally_near_the_first_is_named",
    "test_of_nan_that_is_expected_nothing_is_doubted",
    "test_one_changed_bit_is_noticed_wherever_it_is",
    "test_one_write_between_the_tensors_is_noticed_wherever_it_is",
    "test_one_wrong_element_is_noticed_wherever_it_is",
    "test_what_is_right_is_found_as_the_host_finds_it",
    "test_what_the_kernels_do_not_take_is_left_to_the_host",
    "test_whatever_is_not_right_is_left_to_the_host",
]

pytestmark = pytest.mark.gpu

MISTAKES = (  # of those that read nothing that was never written, and nothing elsewhere: runs give the same bits
    "the sum is not rescaled",
    "the output is not rescaled",
    "one key too few",
    "NaN in odd columns is not computed again",
    "the last key has no gradients",
    "the last query has no gradient",
)


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    found = CudaDevice(0)
    yield found
    found.close()


def judge(device: CudaDevice, source: KernelSource, cache: BuildCache, *, host: bool) -> Verdict:
    op, artifact = get_op(source.problem.op), build_cubin(source, device.identity.spec.arch, cache)
    one = Bench(device, op, *expected(source.problem), making=Making(None if host else device))
    return one.evaluate(artifact, source.plan, TimingBudget(max_seconds=0.05), deterministic=True)


@pytest.mark.parametrize("case", ["forward", "backward", *MISTAKES])
def test_verdicts_are_those_of_the_host(
    case: str, device: CudaDevice, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(device, Comparing)
    source = backward() if case == "backward" or case in GRADIENTS else forward()
    mistake = ATTENTION.get(case) or GRADIENTS.get(case)
    source = source if mistake is None else plant(source, mistake)
    there = judge(device, source, cache, host=True)
    if mistake is None:
        kept = device.download

        def download(name: str) -> NDArray[Any]:
            assert name.startswith("comparison: "), f"{name} was downloaded"
            return kept(name)

        monkeypatch.setattr(device, "download", download)
    here = judge(device, source, cache, host=False)
    assert (here.outcome is Outcome.OK) == (mistake is None)
    assert (here.outcome, here.message, here.verification) == (there.outcome, there.message, there.verification)
