"""The wrappers of `templates/common/` on the GPU: the very tests that their emulated twins pass there."""

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.small_kernel import SmallKernel

__all__ = ["on_the_gpu"]

pytestmark = pytest.mark.gpu

COMMON = Path(__file__).parents[1] / "kernels" / "common"
FIXTURES = {"cache", "monkeypatch", "tmp_path"}


def fixtures_of(function: Callable[..., Any]) -> set[str]:
    """What a test is given by fixtures: all but its cases."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    cases = [
        name.strip() for m in marks for name in (m.args[0].split(",") if isinstance(m.args[0], str) else m.args[0])
    ]
    return {*inspect.signature(function).parameters} - {*cases}


for path in sorted(COMMON.rglob("test_*.py")):
    module = ".".join(("tests", "kernels", "common", *path.relative_to(COMMON).with_suffix("").parts))
    for name, function in vars(import_module(module)).items():
        if name.startswith("test_"):
            assert name not in globals(), f"{name} is in two modules; one would not be run"
            assert fixtures_of(function) <= FIXTURES, f"{module}.{name}: its module's fixtures are not known here"
            globals()[name] = function


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small kernels are compiled by nvcc and run on the GPU."""
    monkeypatch.setattr(SmallKernel, "emulated", False)
