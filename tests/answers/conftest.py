"""Look-ups in a database of a test's own, with one family and no winners that ship."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.families import template
from autotune.families.template import Template
from autotune.gpus import present as detect
from autotune.store import Store, entries, open_store
from autotune.store.json_lines import Line
from tests.small_templates import MakeTemplate


@pytest.fixture
def family(make_template: MakeTemplate, monkeypatch: pytest.MonkeyPatch) -> Template:
    """The one family there is."""
    made = make_template()
    monkeypatch.setattr(template, "builtin_templates", lambda op: (made,) if op == "forward" else ())
    return made


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Line]]:
    """The winners that come with the package: none, until a test adds some."""
    lines: list[Line] = []
    monkeypatch.setattr(entries, "shipped_winners", lambda: tuple(lines))
    entries._shipped.cache_clear()
    yield lines
    entries._shipped.cache_clear()


@pytest.fixture
def store(tmp_path: Path, shipped: list[Line], monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("AUTOTUNE_DEVICE", "AUTOTUNE_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    monkeypatch.setattr(detect, "present_gpu", lambda index=0: None)
    with open_store() as opened:
        yield opened
