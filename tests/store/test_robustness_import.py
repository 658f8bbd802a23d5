"""Lines that are wrong in any one place: refused as such, or imported and then shown, never a bug."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run
from autotune.store import open_store
from autotune.store.json_lines import LineError, parse_line
from autotune.store.transfer import export_lines, import_lines
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok

VALUES: tuple[Any, ...] = (
    None, True, -1, 1.5, float("nan"), "é\0", "\ud800", [], [[]], {"x": 1}, 10**30, -(10**30), "2020-01-01",
)  # fmt: skip


@pytest.fixture(scope="module")
def winner(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with open_store(tmp_path_factory.mktemp("import") / "a.db") as store:
        store.record(H200, FORWARD, candidate(), SOURCE, ok(2.0))
        [line] = export_lines(store, winners_only=True)
    data: dict[str, Any] = json.loads(line.text())
    return data


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def changed(line: dict[str, Any], path: tuple[Any, ...], value: Any) -> str:
    line = copy.deepcopy(line)
    inner: Any = line
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(line)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_any_value_anywhere(
    value: Any, winner: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = [parse_line(json.dumps(winner))]
    for place in places(winner):
        try:
            sound.append(parse_line(changed(winner, place, value)))
        except LineError:
            continue
    assert len(sound) < len(list(places(winner))) * 0.6
    path = tmp_path / "b.db"
    with open_store(path) as store:
        import_lines(store, sound)
        records = [record.id for record in store.trials(limit=1000)]
    for command in (["list", "trials"], ["list", "devices"], *(["show", str(number)] for number in records)):
        assert run([*command, "--db", str(path)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", "null", "[" * 100_000, '{"a":' * 100_000, "1" * 5000, "\0"])
def test_what_is_no_record(text: str) -> None:
    with pytest.raises(LineError):
        parse_line(text)
