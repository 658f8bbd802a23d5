"""What look-ups make of databases: read anew when they change, broken, of another schema or an older model."""

import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.core.errors import (
    StoreError,
    UsageError,
)
from autotune.core.model_version import DRIVER, MODEL
from autotune.families.template import Template
from autotune.store import Store, open_store
from tests.answers.lookup_records import FORWARD, made
from tests.store.store_records import CPU_H200, H200, SOURCE, ok


def test_asking_again_gives_the_same_answer_until_something_is_written(store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family, 16), SOURCE, ok(9.0))
    first = autotune.best("forward")
    assert autotune.best("forward") is first
    for i in range(20):  # quicker than the clock of any file system
        store.record(H200, FORWARD, made(family, (16, 32, 64)[i % 3], PAD=i % 2), f"{i:016x}", ok(8.0 - i / 10))
        assert autotune.best("forward").ms == 8.0 - i / 10


def test_a_database_that_is_replaced_is_read_anew(tmp_path: Path, store: Store, family: Template) -> None:
    store.record(H200, FORWARD, made(family), SOURCE, ok(9.0))
    assert autotune.best("forward").ms == 9.0
    with open_store(tmp_path / "b.db") as other:
        other.record(H200, FORWARD, made(family), SOURCE, ok(7.0))
    store.close()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"a.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "b.db").replace(tmp_path / "a.db")
    assert autotune.best("forward").ms == 7.0
    (tmp_path / "a.db").unlink()
    assert autotune.best("forward").answer == "default"


def test_a_broken_database_is_an_error(tmp_path: Path, store: Store, family: Template) -> None:
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(StoreError, match=r"cannot read the database .*bad\.db"):
        autotune.best("forward", db=bad)
    with pytest.raises(StoreError, match="is a folder"):
        autotune.best("forward", db=tmp_path)
    with pytest.raises(UsageError, match="malformed database URL"):
        autotune.best("forward", db="postgresql+psycopg://h:port/x")


def test_another_schema_version_is_an_error(tmp_path: Path, store: Store, family: Template) -> None:
    with store.write() as session:
        session.connection().exec_driver_sql("UPDATE autotune_version SET version_num = '0099'")
    with pytest.raises(StoreError, match="schema version 0099"):
        autotune.best("forward")


def test_looking_up_loads_no_sqlalchemy(tmp_path: Path) -> None:
    open_store(tmp_path / "a.db").close()
    code = (
        "import sys, autotune; assert 'numpy' not in sys.modules; autotune.best('forward', device='h200'); "
        "print([name for name in ('sqlalchemy', 'alembic', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"AUTOTUNE_DB": str(tmp_path / "a.db"), "PATH": ""}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_an_estimate_by_an_older_model_says_so(store: Store, family: Template) -> None:
    store.record(CPU_H200, FORWARD, made(family, 32), SOURCE, ok(0.5, "estimated", driver="", compiler=""))
    old = autotune.best("forward")
    assert (old.kind, old.ms) == ("estimated", 0.5)
    assert old.notes == (f"estimated by model 1, an older one than {MODEL}: search again for new figures",)
    store.record(CPU_H200, FORWARD, made(family, 16), SOURCE, ok(0.7, "estimated", driver=DRIVER, compiler=""))
    new = autotune.best("forward")
    assert (new.config["BLOCK_M"], new.ms, new.notes) == (16, 0.7, ())


def test_of_estimates_by_a_template_as_it_is_now_the_newest_models_come_first(store: Store, family: Template) -> None:
    store.record(CPU_H200, FORWARD, made(family, 64, "a" * 16), SOURCE, ok(0.1, "estimated", driver=DRIVER))
    store.record(CPU_H200, FORWARD, made(family, 16), SOURCE, ok(0.3, "estimated", driver=DRIVER))
    store.record(CPU_H200, FORWARD, made(family, 32), SOURCE, ok(0.2, "estimated", driver="estimates, model 1"))
    assert (autotune.best("forward").ms, autotune.best("forward").config["BLOCK_M"]) == (0.3, 16)


def test_no_database_at_all_is_no_error(tmp_path: Path, store: Store, family: Template) -> None:
    path = tmp_path / "none.db"
    assert autotune.best("forward", db=path).answer == "default"
    assert not path.exists()
    with open_store(path) as made_later:
        made_later.record(H200, FORWARD, made(family), SOURCE, ok(1.0))
    assert autotune.best("forward", db=path).answer == "exact"
