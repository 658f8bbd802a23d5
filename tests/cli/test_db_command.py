"""`autotune db`: export, import, upgrade, forget."""

import json
import sqlite3
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.devices.recorded import RecordedSpace
from autotune.families.template import builtin_templates
from autotune.gpus.known import gpu
from autotune.store import open_store
from autotune.store.schema_version import HEAD, VERSION_TABLE
from tests.cli.calling import Capture, call, fails
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok


@pytest.mark.parametrize("form", ["kernel-tuner", "t4"])
def test_export_for_other_tuners(db: Path, tmp_path: Path, capsys: Capture, form: str) -> None:
    family, file = builtin_templates("forward")[0], tmp_path / "out.json"
    chosen = ("--format", form, "--device", "h200", "--template", family.name, "--problem", FORWARD.key)
    assert call(capsys, "db", "export", "-o", str(file), *chosen) == {"configurations": 1, "file": str(file)}
    space = RecordedSpace.load(file)
    assert (space.name, space.device, space.best_ms) == (family.name, gpu("h200").title, 0.0125)
    assert list(space.configs) == [family.defaults]
    assert run(["db", "export", *chosen]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_an_export_for_other_tuners_is_of_one_family(db: Path, capsys: Capture) -> None:
    assert "holds several" in fails(capsys, 2, "db", "export", "--format", "t4")
    assert "no measurement that is asked for" in fails(capsys, 2, "db", "export", "--format", "t4", "--op", "backward")
    assert "--winners means nothing" in fails(capsys, 2, "db", "export", "--format", "t4", "--winners")
    assert "are for --format" in fails(capsys, 2, "db", "export", "--template", "flash")


def test_export_and_import(db: Path, tmp_path: Path, capsys: Capture) -> None:
    file, other = tmp_path / "all.jsonl", str(tmp_path / "b.db")
    assert call(capsys, "db", "export", "-o", str(file)) == {"lines": 6, "file": str(file)}
    assert call(capsys, "db", "import", str(file), "--db", other) == {"added": 4, "known": 2, "winners": 2}
    assert call(capsys, "db", "import", str(file), "--db", other) == {"added": 0, "known": 6, "winners": 2}
    assert run(["db", "export", "--db", other]) == 0
    assert capsys.readouterr().out == file.read_text()
    records = call(capsys, "db", "export", "--db", other)
    assert records == [json.loads(line) for line in file.read_text().splitlines()]
    assert call(capsys, "db", "export", "--op", "backward") == []
    assert run(["db", "export", "--winners", "--device", "h200"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["measurement"]["timing"]["median_ms"] == 0.015


def test_a_bad_import_makes_no_database(tmp_path: Path, capsys: Capture) -> None:
    file, path = tmp_path / "bad.jsonl", tmp_path / "c.db"
    file.write_text('{"record": "measurement"}\n')
    assert "bad.jsonl, line 1: the record lacks" in fails(capsys, 2, "db", "import", str(file), "--db", str(path))
    assert not path.exists()


def test_upgrade(db: Path, capsys: Capture) -> None:
    assert call(capsys, "db", "upgrade") == {"before": HEAD, "after": HEAD}
    with sqlite3.connect(db) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0099'")
    assert "upgrade autotune" in fails(capsys, 1, "db", "upgrade")
    assert "schema version 0099" in fails(capsys, 1, "list")


def test_a_missing_or_broken_database(tmp_path: Path, capsys: Capture) -> None:
    for command in (["list"], ["show", "1"], ["db", "export"], ["db", "upgrade"]):
        assert "there is no database" in fails(capsys, 1, *command, "--db", str(tmp_path / "no.db"))
    (tmp_path / "text.db").write_text("hello")
    assert "is not a SQLite database" in fails(capsys, 1, "list", "--db", str(tmp_path / "text.db"))
    assert "is a folder" in fails(capsys, 1, "list", "--db", str(tmp_path))


def test_forgetting(db: Path, capsys: Capture) -> None:
    assert call(capsys, "db", "forget", "--outcome", "wrong_result", "--dry-run")["forgotten"] == {"wrong_result": 1}
    assert call(capsys, "db", "forget", "--outcome", "crash")["forgotten"] == {}
    assert run(["db", "forget", "--outcome", "wrong_result", "--outcome", "crash"]) == 0
    assert capsys.readouterr().out == "1 record forgotten: wrong_result 1\n"
    assert run(["db", "forget", "2", "3"]) == 0
    assert capsys.readouterr().out == (
        "2 records forgotten: ok 2\nwinners among them: 0 replaced by the best that is left, 1 without another\n"
    )
    with open_store(db) as store:
        assert [record.id for record in store.measurements(stage=None)] == [4]
    assert "name what to forget" in fails(capsys, 2, "db", "forget")
    assert "not one of" in fails(capsys, 2, "db", "forget", "--outcome", "bad")


def test_forgetting_what_is_not_there(db: Path, capsys: Capture) -> None:
    assert "there is no record 99999; nothing was forgotten" in fails(capsys, 1, "db", "forget", "99999")
    assert "there is no record 77, 99999" in fails(capsys, 1, "db", "forget", "2", "99999", "77", "--json")
    assert "there is no record 9" in fails(capsys, 1, "db", "forget", "9" * 30, "--dry-run")
    # There is such a record, of another outcome.
    assert call(capsys, "db", "forget", "2", "--outcome", "crash")["forgotten"] == {}
    with open_store(db) as store:
        assert len(list(store.measurements(stage=None))) == 4


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["forget", "x"], "db forget"),
        (["forget", "1", "--colour"], "db forget"),
        (["export", "--format", "x"], "db export"),
        (["export", "--op"], "db export"),
        (["import"], "db import"),
        (["starts", "add"], "db starts add"),
        (["nothing"], "db"),
    ],
)
def test_wrong_usage_points_to_the_help_of_its_command(arguments: list[str], command: str, capsys: Capture) -> None:
    assert fails(capsys, 2, "db", *arguments).endswith(f"(see autotune {command} --help)\n")


def test_an_import_says_how_many_of_what(db: Path, tmp_path: Path, capsys: Capture) -> None:
    file, other = tmp_path / "one.jsonl", tmp_path / "b.db"
    assert run(["db", "export", "--device", "cpu:h200", "-o", str(file)]) == 0
    assert capsys.readouterr().out == f"2 lines written to {file}\n"
    assert run(["db", "import", str(file), "--db", str(other)]) == 0
    assert capsys.readouterr().out == "1 record added, 1 known already, 1 winner stands\n"
    assert run(["db", "export", "--winners", "--db", str(other), "-o", str(file)]) == 0
    assert capsys.readouterr().out == f"1 line written to {file}\n"


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_import_of_nothing_makes_no_database(text: str, tmp_path: Path, capsys: Capture) -> None:
    file, path = tmp_path / "empty.jsonl", tmp_path / "new.db"
    file.write_text(text)
    said = fails(capsys, 1, "db", "import", str(file), "--db", str(path))
    assert said == f"error: there is no record in {file}; nothing was imported\n"
    assert not path.exists()


def test_a_recording_of_several_families_names_the_option(db: Path, tmp_path: Path, capsys: Capture) -> None:
    with open_store(db) as store:
        store.record(H200, FORWARD, candidate(3), SOURCE, ok(0.5))
    file = tmp_path / "e.jsonl"
    assert run(["db", "export", "--device", "h200", "-o", str(file)]) == 0
    capsys.readouterr()
    names = ", ".join(sorted([builtin_templates("forward")[0].name, candidate(3).template]))
    said = f"choose one with --template NAME (there are {names})"
    assert said in fails(capsys, 2, "replay", str(file))
    assert said in fails(capsys, 2, "db", "export", "--format", "t4", "--device", "h200")
