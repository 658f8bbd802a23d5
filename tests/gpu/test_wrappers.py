"""The wrappers of `templates/common/` on the GPU: the very tests that their emulated twins pass there."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.emulator.small_kernel import SmallKernel

__all__ = ["on_the_gpu"]

pytestmark = pytest.mark.gpu

COMMON = Path(__file__).parents[1] / "kernels" / "common"

for path in sorted(COMMON.rglob("test_*.py")):
    module = ".".join(("tests", "kernels", "common", *path.relative_to(COMMON).with_suffix("").parts))
    for name, function in vars(import_module(module)).items():
        if name.startswith("test_"):
            assert name not in globals(), f"{name} is in two modules; one would not be run"
            globals()[name] = function


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small kernels are compiled by nvcc and run on the GPU."""
    monkeypatch.setattr(SmallKernel, "emulated", False)
