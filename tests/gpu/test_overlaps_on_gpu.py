"""Kernels that overlap the one before them, by the driver itself, from a graph, too: results are right."""

from typing import Any

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.outcome import Outcome
from autotune.core.values import Config
from autotune.devices.cuda import CudaDevice
from autotune.devices.measure import Bench
from autotune.devices.protocol import TimingBudget
from autotune.families.render import render
from autotune.families.template import Template, find_template
from autotune.ops.expected import expect
from autotune.ops.registry import get_op
from tests.kernels.test_overlaps import FAMILY, PROBLEM

pytestmark = pytest.mark.gpu

BACKWARD = find_template("backward", "flash_wgmma")
SHORT = get_op("backward").problem(B=2, NH=8, NH_kv=4, T=500, T_kv=600, HS=64, dtype="fp16", causal=True)
WAYS: list[Config] = [
    {"NEXT_KERNEL": how, "DQ_ACCUMULATE": way}
    for how in ("at_end", "at_start")
    for way in ("atomic", "separate", "turns")
]


@pytest.mark.parametrize(
    ("family", "problem", "config"),
    [(FAMILY, PROBLEM, {"OVERLAP": True}), *((BACKWARD, SHORT, way) for way in WAYS)],
    ids=str,
)
def test_results_are_right(family: Template, problem: Any, config: Config, cache: BuildCache) -> None:
    """Timed, too: repeats follow one another at once, so that what one call leaves is what the next begins with."""
    device = CudaDevice(0)
    try:
        spec = device.identity.spec
        if spec.arch != "sm_90a":
            pytest.skip(f"{spec.title} is no Hopper")
        op = get_op(problem.op)
        source = render(family, problem, {**family.defaults, **config}, spec)
        bench = Bench(device, op, expect(op, problem, seed=1))
        verdict = bench.evaluate(build_cubin(source, spec.arch, cache), source.plan, TimingBudget(max_seconds=0.05))
        assert (verdict.outcome, verdict.message) == (Outcome.OK, "")
        assert verdict.timing is not None
    finally:
        device.close()


def test_a_graph_of_them() -> None:
    """Captured and replayed, calls give what they gave before."""
    torch = pytest.importorskip("torch")
    from autotune.answers.best import Best
    from autotune.answers.kernel import Kernel
    from autotune.devices.driver import cuda_driver
    from autotune.families.space import Space
    from autotune.gpus.present import present_gpu

    spec = present_gpu()
    if spec is None or spec.arch != "sm_90a":
        pytest.skip("no Hopper")
    for way in WAYS:
        candidate = Space(BACKWARD, SHORT, spec).candidate({**BACKWARD.defaults, **way})
        found = Best("default", "none", None, SHORT, spec, candidate, template=BACKWARD)
        kernel = Kernel(found, lambda problem: found, cuda_driver(), 0)  # noqa: B023 - called in this round
        torch.manual_seed(1)
        tensors = {t.name: t for t in get_op("backward").tensors(SHORT)}
        given = {
            name: torch.randn(tensors[name].shape, device="cuda", dtype=torch.float16)
            .transpose(1, 2)
            .contiguous()
            .transpose(1, 2)
            for name in ("q", "k", "v", "out", "dout")
        }
        given["lse"] = torch.full(tensors["lse"].shape, 8.0, device="cuda", dtype=torch.float32)
        before = {name: value.clone() for name, value in kernel(**given).items()}
        outputs = {name: torch.empty_like(value) for name, value in before.items()}
        graph = torch.cuda.CUDAGraph()
        kernel(**given, **outputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            kernel(**given, **outputs)
        for value in outputs.values():
            value.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for name, value in before.items():
            torch.testing.assert_close(outputs[name], value, rtol=2e-3, atol=2e-3)
