"""The schema: made from blank, from the first version, and equal to what the models say."""

import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from autotune.core import resources
from autotune.core.errors import StoreError
from autotune.core.outcome import Outcome
from autotune.store import open_store
from autotune.store import schema as schema_module
from autotune.store import schema_version as version_module
from autotune.store.connections import migrating, reading, writing
from autotune.store.opening import open_engine
from autotune.store.records import Owner
from autotune.store.schema import alembic_config, current_version, migrate, upgrade
from autotune.store.schema_version import HEAD, VERSION_TABLE
from autotune.store.tables import Base
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, failed, ok

LATER = '''"""A later schema."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("device", sa.Column("note", sa.Text(), nullable=True))
'''
MADE_ANEW = (
    LATER
    + """
    with op.batch_alter_table("device", recreate="always") as device:
        device.alter_column("title", new_column_name="heading")
"""
)


def _difference(path: Path) -> object:
    engine = open_engine(path)
    with reading(engine) as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)


def test_head_is_the_newest_migration() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    assert script.get_current_head() == HEAD


def test_a_blank_database_gets_what_the_models_say(tmp_path: Path) -> None:
    open_store(tmp_path / "a.db").close()
    assert _difference(tmp_path / "a.db") == []


def test_the_first_schema_is_brought_to_what_the_models_say(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "a.db")
    with writing(engine) as connection:
        migrate(connection, "0001")
    upgrade(engine)
    assert _difference(tmp_path / "a.db") == []


def test_every_constraint_of_the_models_is_in_the_database(tmp_path: Path) -> None:
    """Alembic compares neither check constraints nor the conditions of partial indexes."""
    open_store(tmp_path / "migrated.db").close()
    engine = open_engine(tmp_path / "models.db")
    with writing(engine) as connection:
        Base.metadata.create_all(connection)
    assert _ddl(tmp_path / "migrated.db") == _ddl(tmp_path / "models.db")


def _ddl(path: Path) -> dict[str, list[str]]:
    """Statements by name, as sorted parts: columns may come in another order."""
    rows = sqlite3.connect(path).execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    ours = {name: sql for name, sql in rows if name not in {VERSION_TABLE, "sqlite_sequence"}}
    return {name: sorted(_parts(sql.replace('"', ""))) for name, sql in ours.items()}


def _parts(sql: str) -> Iterator[str]:
    """What stands in the first brackets, divided at the commas that are in no others; then what follows."""
    head, _, rest = sql.partition("(")
    depth, part = 0, ""
    yield " ".join(head.split())
    for letter in rest:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if (letter == "," and depth == 0) or (letter == ")" and depth < 0):
            yield " ".join(part.split())
            part = ""
        else:
            part += letter
    yield " ".join(part.split())


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A database of the first schema that something was measured into: a winner, a failure, a claim."""
    path = tmp_path / "old.db"
    engine = open_engine(path)
    with writing(engine) as connection:
        migrate(connection, "0001")
    engine.dispose()
    other = tmp_path / "new.db"
    with open_store(other) as store:
        store.record(H200, FORWARD, candidate(), SOURCE, ok(1.5))
        store.record(H200, FORWARD, candidate(32), SOURCE, failed(Outcome.CRASH))
        store.claim(H200, FORWARD, candidate(16), Owner.here())
    with sqlite3.connect(path) as old:
        old.execute("ATTACH ? AS new", (str(other),))
        for table in ("device", "problem", "candidate", "search", "measurement", "claim", "winner"):
            names = ", ".join(row[1] for row in old.execute(f"PRAGMA main.table_info({table})"))
            found = names.replace("heartbeat", "expires")
            old.execute(f"INSERT INTO main.{table} ({names}) SELECT {found} FROM new.{table}")
    return path


def _dump(path: Path, *, without: Collection[str] = ()) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        found = {}
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] not in without]
            found[table] = connection.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
    return {table: rows for table, rows in found.items() if table not in {VERSION_TABLE, "sqlite_sequence"}}


def test_a_filled_database_is_upgraded_and_back(filled: Path) -> None:
    before = _dump(filled)
    assert len(before["claim"]) == 1  # of a process that an upgrade shuts out
    assert upgrade(open_engine(filled)) == ("0001", HEAD)
    assert _dump(filled, without=("machine_code", "energy_mj")) == {**before, "claim": []}
    assert _difference(filled) == []
    with open_store(filled) as store:
        (crowned,) = store.winners()
        assert (crowned.record.measurement.ms, crowned.record.measurement.machine_code) == (1.5, None)
        number = store.record(H200, FORWARD, candidate(8), SOURCE, replace(ok(1.0), machine_code="ab" * 16))
        record = store.measurement(number)
        assert record is not None
        assert record.measurement.machine_code == "ab" * 16
    with closing(sqlite3.connect(filled)) as connection:
        query = "SELECT machine_code FROM measurement ORDER BY id"
        assert connection.execute(query).fetchall() == [(None,), (None,), ("ab" * 16,)]
        connection.execute("DELETE FROM winner WHERE measurement_id > 1")
        connection.execute("DELETE FROM measurement WHERE id > 2")
        connection.commit()
    with migrating(open_engine(filled)) as connection_to_old:
        command.downgrade(_configured(connection_to_old), "0001")
    left = _dump(filled)
    assert left["measurement"] == before["measurement"]
    assert left.keys() == before.keys()
    with closing(sqlite3.connect(filled)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(claim)")]
    assert columns[-1] == "heartbeat"


def test_a_filled_server_is_upgraded(postgres: str) -> None:
    engine = open_engine(postgres)
    with writing(engine) as connection:
        migrate(connection, "0002")
        for statement in (
            "INSERT INTO device VALUES (100, 'h200', 'cuda', 'NVIDIA H200', 'sm_90a', 90, '{}')",
            "INSERT INTO problem VALUES (100, 'forward T=1', 'forward', '{}')",
            "INSERT INTO candidate VALUES (100, 'forward', 'simt', 'ab', 'simt X=1', '{}')",
            "INSERT INTO claim VALUES (100, 100, 100, 100, 'somebody', 'lab', 17, 1.5)",
        ):
            connection.execute(text(statement))
    assert upgrade(engine) == ("0002", HEAD)
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM candidate")).scalar() == 1
        assert connection.execute(text("SELECT count(*) FROM claim")).scalar() == 0
    with open_store(postgres) as store:
        assert store.claim(H200, FORWARD, candidate(), Owner.here()).granted


def _configured(connection: Connection) -> Config:
    configuration: Config = alembic_config()
    configuration.attributes["connection"] = connection
    return configuration


@pytest.fixture
def later_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that knows a schema 0005."""
    db = tmp_path / "resources" / "db"
    shutil.copytree(resources.resource_root("db"), db)
    (db / "migrations" / "versions" / "0005_later.py").write_text(LATER)
    monkeypatch.setattr(resources, "resource_root", lambda name: db)
    for module in (version_module, schema_module):
        monkeypatch.setattr(module, "HEAD", "0005")


def test_an_older_database_names_the_command_that_upgrades_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "old.db"
    with open_store(path) as store:
        number = store.record(H200, FORWARD, candidate(), SOURCE, ok(1.5))
    request.getfixturevalue("later_schema")
    with pytest.raises(StoreError, match=f"older than 0005: run `autotune db upgrade --db {path}`"):
        open_store(path)
    assert upgrade(open_engine(path)) == ("0004", "0005")
    with open_store(path) as store:
        record = store.measurement(number)
        assert record is not None
        assert record.measurement.ms == 1.5
    columns = [row[1] for row in sqlite3.connect(path).execute("PRAGMA table_info(device)")]
    assert "note" in columns
    assert upgrade(open_engine(path)) == ("0005", "0005")


def test_an_upgrade_may_make_tables_anew(filled: Path, later_schema: None, tmp_path: Path) -> None:
    """SQLite changes a column by copying its table; rows that refer to it must neither stop that nor get lost."""
    before = _dump(filled)
    later = tmp_path / "resources" / "db" / "migrations" / "versions" / "0005_later.py"
    later.write_text(MADE_ANEW)
    assert upgrade(open_engine(filled)) == ("0001", "0005")
    assert _dump(filled, without=("machine_code", "energy_mj"))["measurement"] == before["measurement"]
    assert [row[:3] for row in _dump(filled)["device"]] == [row[:3] for row in before["device"]]
    with closing(sqlite3.connect(filled)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert "heading" in [row[1] for row in connection.execute("PRAGMA table_info(device)")]


def test_an_upgrade_that_loses_what_is_referred_to_is_undone(filled: Path, later_schema: None, tmp_path: Path) -> None:
    before = _dump(filled)
    later = tmp_path / "resources" / "db" / "migrations" / "versions" / "0005_later.py"
    later.write_text(LATER + '    op.execute("DELETE FROM device")\n')
    with pytest.raises(StoreError, match="rows of measurement, winner would refer to nothing"):
        upgrade(engine := open_engine(filled))
    assert _dump(filled) == before
    with pytest.raises(StoreError, match="FOREIGN KEY"), writing(engine) as connection:  # as for other writers ever
        connection.execute(text("DELETE FROM device"))


def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, later_schema: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    engine = open_engine(path)
    with writing(engine) as connection:
        migrate(connection, "0001")
    later = tmp_path / "resources" / "db" / "migrations" / "versions" / "0005_later.py"
    later.write_text(LATER + '    op.execute("no such statement")\n')
    with pytest.raises(StoreError, match="syntax error"):
        upgrade(engine)
    with reading(engine) as connection:
        assert current_version(connection) == "0001"
    assert "note" not in [row[1] for row in sqlite3.connect(path).execute("PRAGMA table_info(device)")]


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0099'")
    connection.close()
    before = path.read_bytes()
    for action in (lambda: open_store(path), lambda: upgrade(open_engine(path))):
        with pytest.raises(StoreError, match=f"schema version 0099, this autotune knows {HEAD}: upgrade autotune"):
            action()
    assert path.read_bytes() == before


def test_an_unknown_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = 'ae1027a6acf'")
    with pytest.raises(StoreError, match="unknown schema version 'ae1027a6acf'"):
        open_store(path)


def test_an_optuna_storage_may_live_in_the_same_database(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = f"sqlite:///{tmp_path / 'both.db'}"
    optuna.create_study(storage=url, study_name="theirs")
    with open_store(url) as store:
        store.record(H200, FORWARD, candidate(), SOURCE, ok(1.0))
    assert optuna.load_study(storage=url, study_name="theirs").trials == []


def test_tables_of_another_program_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE device (serial TEXT)")
        connection.execute("INSERT INTO device VALUES ('17')")
    with pytest.raises(StoreError, match="tables of another program named device"):
        open_store(path)
    assert sqlite3.connect(path).execute("SELECT * FROM device").fetchall() == [("17",)]
