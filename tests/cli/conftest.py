"""A small database for the commands that read one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.gpus.known import gpu
from autotune.store import entries, open_store
from tests.store.store_records import CPU_H200, FORWARD, H200, SOURCE, candidate, ok, wrong


@pytest.fixture
def nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(entries, "shipped_winners", lambda: ())
    entries._shipped.cache_clear()
    yield
    entries._shipped.cache_clear()


@pytest.fixture
def db(tmp_path: Path, nothing_shipped: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a.db"
    for name in ("AUTOTUNE_DEVICE", "AUTOTUNE_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AUTOTUNE_DB", str(path))
    family = builtin_templates("forward")[0]
    tuned = Space(family, FORWARD, gpu("h200")).candidate(family.defaults)
    with open_store() as store:
        store.record(H200, FORWARD, candidate(1), SOURCE, wrong())
        store.record(H200, FORWARD, tuned, "ab" * 8, ok(0.0125))
        store.record(H200, FORWARD, tuned, "ab" * 8, ok(0.015), stage="final")
        store.record(CPU_H200, FORWARD, candidate(2), SOURCE, ok(0.005, "estimated"))
        store.name_winner(3)
    return path
