"""The schema: made from blank, from the first version, and equal to what the models say."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from autotune.core import resources
from autotune.core.errors import StoreError
from autotune.store import open_store
from autotune.store import schema as schema_module
from autotune.store import schema_version as version_module
from autotune.store.connections import reading, writing
from autotune.store.opening import open_engine
from autotune.store.schema import alembic_config, current_version, migrate, upgrade
from autotune.store.schema_version import HEAD, VERSION_TABLE
from autotune.store.tables import Base
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok

SECOND = '''"""A later schema."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("device", sa.Column("note", sa.Text(), nullable=True))
'''


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


def _ddl(path: Path) -> set[tuple[str, ...]]:
    """Statements as sorted parts: columns may come in another order."""
    rows = sqlite3.connect(path).execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    ours = [sql for name, sql in rows if name not in {VERSION_TABLE, "sqlite_sequence"}]
    return {tuple(sorted(line.strip(" \t,)").replace('"', "") for line in sql.splitlines())) for sql in ours}


@pytest.fixture
def second_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that knows a schema 0002."""
    db = tmp_path / "resources" / "db"
    shutil.copytree(resources.resource_root("db"), db)
    (db / "migrations" / "versions" / "0002_later.py").write_text(SECOND)
    monkeypatch.setattr(resources, "resource_root", lambda name: db)
    for module in (version_module, schema_module):
        monkeypatch.setattr(module, "HEAD", "0002")


def test_an_older_database_names_the_command_that_upgrades_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "old.db"
    with open_store(path) as store:
        number = store.record(H200, FORWARD, candidate(), SOURCE, ok(1.5))
    request.getfixturevalue("second_schema")
    with pytest.raises(StoreError, match=f"older than 0002: run `autotune db upgrade --db {path}`"):
        open_store(path)
    assert upgrade(open_engine(path)) == ("0001", "0002")
    with open_store(path) as store:
        record = store.measurement(number)
        assert record is not None
        assert record.measurement.ms == 1.5
    columns = [row[1] for row in sqlite3.connect(path).execute("PRAGMA table_info(device)")]
    assert "note" in columns
    assert upgrade(open_engine(path)) == ("0002", "0002")


def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, second_schema: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    engine = open_engine(path)
    with writing(engine) as connection:
        migrate(connection, "0001")
    later = tmp_path / "resources" / "db" / "migrations" / "versions" / "0002_later.py"
    later.write_text(SECOND + '    op.execute("no such statement")\n')
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
        with pytest.raises(StoreError, match="schema version 0099, this autotune knows 0001: upgrade autotune"):
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
