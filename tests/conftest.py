"""One build cache a session; tests marked `gpu` are skipped where there is no GPU, or no PyCUDA to drive it."""

import gc
import importlib.util
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from autotune.compilers.cache import BuildCache
from autotune.gpus.present import present_gpu
from tests.store.store_servers import MISSING, Server, postgresql

for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # nohup and background jobs ignore some; tests send them
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

pytest_plugins = ("tests.small_templates",)

LONG = (
    "test_every_family", "test_every_family_compiles", "test_export", "test_fleet", "test_extreme_values",
    "test_flash_mma_backward", "test_backward_kernels", "test_dropped_in", "test_readme", "test_flash_wgmma_backward",
    "test_dq_owner", "test_flash_wgmma_queries_backward", "test_check_problems", "test_split_keys",
    "test_check_templates", "test_check_mutants", "test_flash_wgmma_forward", "test_flash_mma_forward_ways",
    "test_examination", "test_installed", "test_export_runs", "test_collection", "test_flash_mma_forward",
    "test_flash_mma_backward_compiles", "test_example", "test_check_command", "test_exported_extension",
    "test_flash_mma_compiles", "test_export_projects", "test_torch_attention", "test_search",
    "test_search_machine_fails", "test_locales", "test_search_interrupted", "test_reduced",
    "test_flash_tf32x3_backward_compiles", "test_flash_tf32x3_forward", "test_flash_wgmma_tf32x3_forward",
    "test_head_sizes", "test_ladder", "test_bombs", "test_faults", "test_counting", "test_flash_tf32x3_backward",
    "test_nvcc", "test_planted", "test_hopper_compiles", "test_search_measured", "test_child", "test_comparing_bench",
    "test_device_comparison",
)  # fmt: skip
"""Files that take more than five seconds: they begin first, lest one worker end with them while the other has nothing
left to do. pytest-xdist hands out whole files in this order (`--no-loadscope-reorder`)."""


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
        patch.setenv("AUTOTUNE_EMULATOR_LEVEL", "g")  # thousands of builds, most of which run for milliseconds
        yield folder


@pytest.fixture(scope="session")
def cache(shared_cache: Path) -> BuildCache:
    """The session's builds. A test that counts builds makes a cache of its own."""
    return BuildCache(shared_cache)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A real PostgreSQL, started where its programs are installed."""
    pytest.importorskip("psycopg")
    with postgresql() as found:
        if found is None:
            pytest.skip(MISSING)
        yield found


@pytest.fixture
def postgres(server: Server) -> str:
    """The URL of an empty schema of its own on a real PostgreSQL."""
    name = f"t{uuid.uuid4().hex}"
    admin = create_engine(server.url)
    with admin.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    admin.dispose()
    return f"{server.url}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A path, and the URL of a server where there is one."""
    if request.param == "sqlite":
        return str(tmp_path / "a.db")
    found: str = request.getfixturevalue("postgres")
    return found


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay to the end: the garbage collector need not walk over them again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    without = sum(MISSING in str(report.longrepr) for report in skipped)
    if without:
        terminalreporter.section("PostgreSQL", yellow=True)
        terminalreporter.line(f"{without} tests were SKIPPED: {MISSING}. What is for several machines was not tested.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first. `gpu(pycuda=False)`: kernels are called, which needs the driver alone."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))
    present, pycuda = None, importlib.util.find_spec("pycuda")
    for item in items:
        marker = item.get_closest_marker("gpu")
        if marker is None:
            continue
        present = present_gpu() is not None if present is None else present
        if not present or (marker.kwargs.get("pycuda", True) and pycuda is None):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU" + (" and PyCUDA" if present else "")))
