"""Tensor maps that the driver makes: right results in every layout, strides of PyTorch's tensors, refusals, exports."""

from typing import Any

import numpy as np
import pytest

from autotune.answers.export_text import export_text
from autotune.answers.kernel import Kernel
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.errors import LaunchError
from autotune.core.outcome import Outcome
from autotune.devices.cuda import CudaDevice
from autotune.devices.driver import cuda_driver
from autotune.devices.measure import Bench
from autotune.families.render import render
from autotune.families.space import Space
from autotune.ops.expected import expect
from tests.gpu.exported import run
from tests.kernels.test_tensor_maps import FAMILY, FORWARD, SHAPE, answer

pytestmark = pytest.mark.gpu

FIELDS: dict[str, Any] = {**SHAPE, "dtype": "fp16"}


@pytest.mark.parametrize(
    "changed", [{}, {"dtype": "bf16", "T_kv": 50, "layout": "packed"}, {"layout": "bhtd", "HS": 64}]
)
@pytest.mark.parametrize("group", [1, 2])
def test_a_family_with_maps_is_right(changed: dict[str, Any], group: int, cache: BuildCache) -> None:
    problem = FORWARD.problem(**{**FIELDS, **changed})
    device = CudaDevice(0)
    try:
        spec = device.identity.spec
        config = {**Space(FAMILY, problem, spec).default(), "GROUP": group, "STAGES": 2}
        source = render(FAMILY, problem, config, spec)
        bench = Bench(device, FORWARD, expect(FORWARD, problem, seed=1))
        verdict = bench.evaluate(build_cubin(source, spec.arch, cache), source.plan, None)
        assert (verdict.outcome, verdict.message) == (Outcome.OK, "")
    finally:
        device.close()


def test_strides_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    found = answer(**FIELDS)  # of this very family
    kernel = Kernel(found, lambda _: found, cuda_driver())
    problem = FORWARD.problem(**FIELDS)
    inputs = FORWARD.inputs(problem, 1)
    tensors = {name: torch.from_numpy(array).cuda() for name, array in inputs.items()}
    tensors["q"] = tensors["q"].transpose(1, 2).contiguous().transpose(1, 2)
    wide = torch.zeros((*tensors["k"].shape[:3], 48), dtype=torch.float16, device="cuda")
    wide[..., :32] = tensors["k"]
    tensors["k"] = wide[..., :32]
    for _ in range(2):
        out = kernel(**tensors)["out"].float().cpu().numpy()
        np.testing.assert_allclose(out, FORWARD.reference(problem, inputs)["out"], atol=4e-3)
    with pytest.raises(LaunchError, match="v: TMA cannot copy this tensor"):
        kernel(**{**tensors, "v": torch.zeros((*tensors["v"].shape, 2), dtype=torch.float16, device="cuda")[..., 0]})


def test_an_export_with_maps(tmp_path: Any) -> None:
    done = run(export_text(answer(), "exported.cu", main=True), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS"
