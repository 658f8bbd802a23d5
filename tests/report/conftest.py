from pathlib import Path

import pytest

from tests.report.databases import search_on_emulator


@pytest.fixture(scope="package")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a small search on the emulator."""
    return search_on_emulator(tmp_path_factory.mktemp("searched") / "searched.db")
