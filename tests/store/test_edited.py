"""A database that was edited or damaged: what no trial can have found is refused with a message, whoever reads it."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import autotune
from autotune.core.errors import StoreError, UsageError
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import open_store
from autotune.store.transfer import export_file, import_file
from autotune.tuning.history import Records
from tests.search_doubles import FunctionEvaluator, engine, family, run, took
from tests.store.store_records import H200, SOURCE, failed, ok

PROBLEM = get_op("forward").problem()
OTHER = get_op("forward").problem(T=512)
SPACE = Space(find_template("forward", "flash_simt"), PROBLEM, gpu("h200"))
FAMILY = find_template("forward", "flash_simt")

TIMES = {"minus one": -1.0, "zero": 0.0, "infinity": float("inf"), "not a number": float("nan")}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials of a shipped family on the problem, one on another, one that failed."""
    path = tmp_path_factory.mktemp("original") / "a.db"
    with open_store(path) as store:
        for position, ms in ((0, 1.0), (1, 0.5)):
            store.record(H200, PROBLEM, SPACE.candidate(SPACE[position]), SOURCE, ok(ms))
        store.record(H200, OTHER, SPACE.candidate(SPACE[2]), SOURCE, ok(0.25))
        store.record(H200, PROBLEM, SPACE.candidate(SPACE[3]), SOURCE, failed(Outcome.WRONG_RESULT))
    return path


@pytest.fixture
def database(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(original, tmp_path / "a.db"))


def edit(path: Path, *statements: str, values: tuple[object, ...] = ()) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints=ON")
    connection.execute("PRAGMA foreign_keys=OFF")
    for statement in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


def set_time(path: Path, ms: float, where: str) -> None:
    """In the columns, in the details, or in both."""
    if where in {"columns", "both"}:
        edit(path, "UPDATE measurement SET ms = ? WHERE id = 2", values=(ms,))
    if where in {"details", "both"}:
        word: object = ms if ms in {-1.0, 0.0} else {"$float": str(ms)}
        connection = sqlite3.connect(path)
        [text] = connection.execute("SELECT detail FROM measurement WHERE id = 2").fetchone()
        connection.close()
        detail = json.loads(text)
        detail["timing"]["median_ms"] = word
        edit(path, "UPDATE measurement SET detail = ? WHERE id = 2", values=(json.dumps(detail),))


def looked_up(path: Path) -> object:
    return autotune.best("forward", device="h200", db=path)


def looked_up_nearby(path: Path) -> object:
    return autotune.best("forward", device="h200", db=path, T=1000)


def listed(path: Path) -> object:
    with open_store(path, create=False) as store:
        return store.trials(), store.winners(), store.problems(), store.trials(fastest=True)


def listed_winners(path: Path) -> object:
    with open_store(path, create=False) as store:
        return store.winners()


def shown(path: Path) -> object:
    with open_store(path, create=False) as store:
        return store.measurement(2), store.improvements(PROBLEM, "h200", "measured")


def resumed(path: Path) -> object:
    with open_store(path) as store:
        return list(Records(store, H200, PROBLEM, driver="570.1").news())


def exported(path: Path) -> object:
    with open_store(path, create=False) as store:
        return export_file(store, path.with_suffix(".jsonl"))


def recorded(path: Path) -> object:
    """A new trial, which is compared with the winner."""
    with open_store(path) as store:
        return store.record(H200, PROBLEM, SPACE.candidate(SPACE[4]), SOURCE, ok(0.75))


READERS: tuple[Callable[[Path], object], ...] = (listed, shown, resumed, exported, recorded)


def test_what_was_not_edited_is_read(database: Path) -> None:
    for read in (*READERS, looked_up, looked_up_nearby, listed_winners):
        read(database)


@pytest.mark.parametrize("where", ["columns", "details", "both"])
@pytest.mark.parametrize("time", TIMES)
def test_times_that_are_none(time: str, where: str, database: Path) -> None:
    set_time(database, TIMES[time], where)
    for read in READERS:
        with pytest.raises(StoreError, match=r"record 2 is not sound: .*the database was edited or damaged"):
            read(database)
    assert not list(database.parent.glob("*.jsonl*"))
    if where != "details":  # look-ups read columns alone
        for read in (looked_up, looked_up_nearby):
            with pytest.raises(StoreError, match=r"record 2 is not sound: ms=.* is no time that a kernel can take"):
                read(database)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE winner SET measurement_id = 4 WHERE id = 1", "to record 4, whose outcome is wrong_result"),
        (
            "UPDATE winner SET measurement_id = 3 WHERE id = 1",
            "to record 3, which is of another problem, device or kind",
        ),
        ("UPDATE winner SET measurement_id = 99 WHERE id = 1", "to record 99, which is not there"),
        ("UPDATE measurement SET outcome = 'crash' WHERE id = 2", "to record 2, whose outcome is crash"),
    ],
)
def test_winners_that_are_none(statement: str, why: str, database: Path) -> None:
    edit(database, statement)
    for read in (listed, listed_winners, exported, recorded, looked_up):
        with pytest.raises(StoreError, match=why + "|record 2 is not sound: its columns say crash"):
            read(database)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("detail", "{"), ("detail", "[]"), ("detail", '{"outcome": "fine"}'), ("detail", '{"outcome": "ok"}'),
        ("created_at", "yesterday"),
    ],
)  # fmt: skip
def test_records_that_cannot_be_read(column: str, text: str, database: Path) -> None:
    edit(database, f"UPDATE measurement SET {column} = ? WHERE id = 2", values=(text,))
    for read in (listed, resumed, exported):
        with pytest.raises(StoreError, match=r"record (2|of the database) is not sound"):
            read(database)


def test_an_ok_that_did_not_pass_its_verification(database: Path) -> None:
    edit(
        database, "UPDATE measurement SET detail = replace(detail, '\"not_finite\":0', '\"not_finite\":3') WHERE id = 2"
    )
    for read in READERS:
        with pytest.raises(StoreError, match="record 2 is not sound: its outcome is ok, and its verification did not"):
            read(database)


@pytest.mark.parametrize("word", ["-1.0", "0", "1e999", "NaN", '{"$float":"inf"}', '{"$float":"nan"}', "null", '"1"'])
def test_imports_of_such_times(word: str, database: Path) -> None:
    lines = database.with_suffix(".jsonl")
    exported(database)
    text = lines.read_text()
    lines.write_text(text.replace('"median_ms":0.5,', f'"median_ms":{word},'))
    assert lines.read_text() != text
    with open_store(database.with_name("b.db")) as store, pytest.raises(UsageError, match=r"a\.jsonl, line 2: "):
        import_file(store, lines)
    with open_store(database.with_name("b.db")) as store:
        assert store.trials() == []


def test_commands_say_it_in_one_line(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from autotune.cli.main import run as command

    set_time(database, float("inf"), "both")
    for arguments in (
        ["list", "trials"], ["list", "winners"], ["list", "problems"], ["show", "2"], ["best", "--device", "h200"],
        ["export", "--device", "h200", "-o", str(database.with_suffix(".cu"))], ["db", "export"],
    ):  # fmt: skip
        assert command([*arguments, "--db", str(database)]) == 1, arguments
        out, err = capsys.readouterr()
        assert err.startswith("error: record 2 is not sound: "), arguments
        assert err.endswith("restore a copy, or name another with --db\n")
        assert err.count("\n") == 1
        assert "inf" not in out


def test_what_was_ruled_out_is_known_on_resume(tmp_path: Path) -> None:
    """A search that goes on does not propose, and record, again what constraints had ruled out."""
    fam = family(a=range(4), valid=lambda config: config["a"] != 2)
    ruled_out = fam.candidate({"a": 2})
    with open_store(tmp_path / "a.db") as store:
        Records(store, H200, PROBLEM, driver="570.1").write(ruled_out, "", Measurement(Outcome.INFEASIBLE, "no"))
        search = engine([fam], FunctionEvaluator(lambda _: took(1.0)), Records(store, H200, PROBLEM, driver="570.1"))
        entry = search.ledger.get(ruled_out)
        assert entry is not None
        assert entry.measurement.outcome is Outcome.INFEASIBLE
        assert search.seen(ruled_out)
        run(search)
        assert search.ledger.trials == 3


def test_only_what_was_ruled_out_needs_no_driver(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        store.record(H200, PROBLEM, SPACE.candidate(SPACE[0]), "", Measurement(Outcome.INFEASIBLE, "no"))
        store.record(H200, PROBLEM, SPACE.candidate(SPACE[1]), SOURCE, ok(1.0, driver=""))
        store.record(H200, PROBLEM, SPACE.candidate(SPACE[2]), SOURCE, ok(1.0, driver="570.1"))
        store.record(H200, PROBLEM, SPACE.candidate(SPACE[3]), SOURCE, ok(1.0, driver="535.0"))
        news = list(Records(store, H200, PROBLEM, driver="570.1").news())
    assert [record.id for record in news] == [1, 3]
