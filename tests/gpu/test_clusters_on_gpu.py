"""Launches in clusters by the driver itself: each block has its rank, and results are right."""

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.outcome import Outcome
from autotune.devices.cuda import CudaDevice
from autotune.devices.measure import Bench
from autotune.devices.protocol import TimingBudget
from autotune.families.render import render
from autotune.ops.expected import expect
from tests.kernels.test_clusters import FAMILY, PERMUTE, PROBLEM

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_blocks_take_work_by_their_ranks_there(cluster: int, cache: BuildCache) -> None:
    device = CudaDevice(0)
    try:
        spec = device.identity.spec
        if spec.compute_capability < 90:
            pytest.skip(f"{spec.title} has no clusters")
        source = render(FAMILY, PROBLEM, {"CLUSTER": cluster}, spec)
        bench = Bench(device, PERMUTE, expect(PERMUTE, PROBLEM, seed=1))
        verdict = bench.evaluate(build_cubin(source, spec.arch, cache), source.plan, TimingBudget(max_seconds=0.05))
        assert (verdict.outcome, verdict.message) == (Outcome.OK, "")
        assert verdict.timing is not None
    finally:
        device.close()
