"""Filters of the commands that read a database: a misspelt one is a mistake, a sound one that nothing meets is not."""

import csv
import io
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.core.problem import Problem
from autotune.store import open_store
from tests.cli.calling import Capture, call, fails
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok

OWN = Problem("blur", (("n", 64), ("edge", "wrap"), ("sigma", 1.5)))
LISTS = ("problems", "winners", "searches", "trials")


@pytest.fixture
def own(db: Path) -> Path:
    """A database with a search of an op that is known by its records alone."""
    with open_store() as store:
        search = store.start_search(H200, OWN, {"templates": {"simt": "h"}}, {})
        store.record(H200, OWN, candidate(5), SOURCE, ok(0.5), search.id)
        store.end_search(search.id, "finished")
    return db


@pytest.mark.parametrize("what", LISTS)
@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (("--op", "nope"), "unknown op 'nope'; known: forward, backward, "),
        (("--T", "abc"), "T='abc' is not a whole number"),
        (("--T", "64,abc"), "T='abc' is not a whole number"),
        (("--T", "0"), "T=0 must be at least 1"),
        (("--dtype", "fp23"), "dtype='fp23' is not one of fp16, bf16, fp32"),
        (("--layout", "foo"), "layout='foo' is not one of bthd, bhtd, packed"),
        (("--op", "forward", "--layout", "nn"), "op 'forward': layout='nn' is not one of bthd, bhtd, packed"),
        (("--op", "forward", "--set", "M=64"), "op 'forward' has no field 'M'; its fields are B, NH, "),
        (("--set", "colour=red"), "no op has a field 'colour'; their fields are B, NH, "),
        (("--set", "causal=maybe"), "causal='maybe' is neither true nor false"),
    ],
)
def test_a_misspelt_filter_is_refused(
    what: str, filters: tuple[str, ...], said: str, db: Path, capsys: Capture
) -> None:
    assert said in fails(capsys, 2, "list", what, *filters)
    assert said in fails(capsys, 2, "list", what, *filters, "--json")


def test_before_there_is_a_database(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "none.db"))
    assert "unknown op 'nope'" in fails(capsys, 2, "list", "winners", "--op", "nope")
    assert "is not one of" in fails(capsys, 2, "list", "--shipped", "--dtype", "fp23")
    assert "is not a whole number" in fails(capsys, 2, "list", "trials", "--T", "abc")


@pytest.mark.parametrize("what", LISTS)
@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        (("--op", "blur"), 1),
        (("--set", "n=64"), 1),
        (("--set", "n=65"), 0),
        (("--op", "blur", "--set", "edge=wrap", "--set", "sigma=1.5"), 1),
        (("--T", "65"), 0),
        (("--dtype", "bf16"), 0),
    ],
)
def test_ops_that_the_database_knows_are_filters(
    what: str, filters: tuple[str, ...], rows: int, own: Path, capsys: Capture
) -> None:
    alone = ("--own",) if what == "winners" else ()
    assert len(call(capsys, "list", what, *alone, *filters)) == rows


def test_a_misspelt_filter_of_such_an_op(own: Path, capsys: Capture) -> None:
    assert "op 'blur': edge='warp' is not one of wrap" in fails(
        capsys, 2, "list", "trials", "--op", "blur", "--set", "edge=warp"
    )
    assert "op 'blur': n='many'" in fails(capsys, 2, "list", "trials", "--op", "blur", "--set", "n=many")
    said = fails(capsys, 2, "list", "trials", "--op", "blur", "--T", "64")
    assert "op 'blur' has no field 'T'; its fields are n, edge, sigma" in said
    assert said.count("blur") == 1
    said = fails(capsys, 2, "list", "--op", "blurr")
    assert "unknown op 'blurr'; known: " in said
    assert "blur" in said.strip().split(", ")


def test_values_are_compared_as_problems_have_them(db: Path, capsys: Capture) -> None:
    assert len(call(capsys, "list", "trials", "--set", "causal=yes")) == 4
    assert len(call(capsys, "list", "trials", "--T", "1024e0")) == 4
    scaled = Problem("softmax", (("scale", 1.0),))
    with open_store() as store:
        store.record(H200, scaled, candidate(6), SOURCE, ok(0.5))
    assert [row["problem"] for row in call(capsys, "list", "trials", "--set", "scale=1")] == [scaled.to_json()]


@pytest.mark.parametrize("command", [("export",), ("export", "--winners"), ("forget",)])
def test_other_commands_with_an_op(command: tuple[str, ...], own: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "q.jsonl"
    output = ("-o", str(file)) if command[0] == "export" else ()
    assert "unknown op 'nope'; known: forward, " in fails(capsys, 2, "db", *command, "--op", "nope", *output)
    assert not file.exists()
    assert run(["db", *command, "--op", "blur", *output]) == 0
    assert capsys.readouterr().out.startswith("1 record" if not output else "2 lines" if not command[1:] else "1 line ")


def test_a_mirror_of_an_unknown_op(db: Path, tmp_path: Path, capsys: Capture) -> None:
    journal = tmp_path / "journal.log"
    assert "unknown op 'nope'" in fails(capsys, 2, "db", "export", "--optuna", str(journal), "--op", "nope")
    assert not journal.exists()


@pytest.mark.parametrize("what", [*LISTS, "devices"])
def test_a_spreadsheet_without_rows_has_its_heading(what: str, own: Path, capsys: Capture) -> None:
    with open_store() as store:
        search = store.start_search(H200, FORWARD, {"templates": {"simt": "h"}}, {})
        store.record(H200, FORWARD, candidate(7), SOURCE, ok(0.5), search.id)
    chosen = {"devices": (), "winners": ("--op", "forward", "--own")}.get(what, ("--op", "forward"))
    headings = []
    for device in ("h200", "a100"):
        assert run(["list", what, "--csv", *chosen, "--device", device]) == 0
        heading, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
        assert bool(rows) == (device == "h200")
        headings.append(heading)
    full, bare = headings
    assert bare == [name for name in full if not name.startswith(("config.", "outcomes."))]
