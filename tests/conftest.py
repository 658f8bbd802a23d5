"""One build cache a session; tests marked `gpu` are skipped where there is no GPU, or no PyCUDA to drive it."""

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.gpus.present import present_gpu

for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # nohup and background jobs ignore some; tests send them
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

pytest_plugins = ("tests.small_templates",)


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of all builds, those of child processes and of all workers of pytest-xdist included.

    It begins empty, so that every binary is really built, once; entries are found by content. `AUTOTUNE_CACHE` names
    one that is kept from one session to the next.
    """
    given = os.environ.get("AUTOTUNE_CACHE")
    base = tmp_path_factory.getbasetemp()
    alone = "PYTEST_XDIST_WORKER" not in os.environ  # a worker's own folder lies in that of the session
    folder = Path(given) if given else (base if alone else base.parent) / "builds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def cache(shared_cache: Path) -> BuildCache:
    """The session's builds. A test that counts builds makes a cache of its own."""
    return BuildCache(shared_cache)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`gpu(pycuda=False)`: kernels are called, which needs the driver alone."""
    present, pycuda = None, importlib.util.find_spec("pycuda")
    for item in items:
        marker = item.get_closest_marker("gpu")
        if marker is None:
            continue
        present = present_gpu() is not None if present is None else present
        if not present or (marker.kwargs.get("pycuda", True) and pycuda is None):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU" + (" and PyCUDA" if present else "")))
