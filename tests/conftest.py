"""A build cache for each file; tests marked `gpu` are skipped where there is no GPU, or no PyCUDA to drive it."""

import importlib.util

import pytest

from autotune.compilers.cache import BuildCache
from autotune.gpus.present import present_gpu

pytest_plugins = ("tests.small_templates",)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    """Of its own, so that every binary is really built."""
    return BuildCache(tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked or (present_gpu() is not None and importlib.util.find_spec("pycuda")):
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU and PyCUDA")
    for item in marked:
        item.add_marker(skip)
