"""The commands that read a database: `best`, `list` and `show`."""

import csv
import io
from pathlib import Path

import pytest

from autotune.cli.main import run
from autotune.core.candidate import make_candidate
from autotune.families.template import builtin_templates
from autotune.store import open_store
from autotune.store.shipped import shipped_winners
from tests.cli.calling import Capture, call, fails
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok, wrong

OTHER = FORWARD.replace(T=64, T_kv=64)
FAMILY = builtin_templates("forward")[0].name


@pytest.fixture
def searched(db: Path) -> Path:
    """With two searches of another problem: one of three trials, one that was worse."""
    with open_store() as store:
        for sampler, times in (("tpe", (4.0, 2.0, 3.0)), ("random", (8.0,))):
            settings = {"templates": {"simt": "h"}, "sampler": sampler, "seed": 7}
            search = store.start_search(H200, OTHER, settings, {})
            for at, ms in enumerate(times):
                store.record(H200, OTHER, candidate(at + 10 * len(times)), SOURCE, ok(ms), search.id)
            store.end_search(search.id, "finished")
    return db


def test_best_as_json(db: Path, capsys: Capture) -> None:
    data = call(capsys, "best", "--op", "forward", "--device", "h200")
    assert (data["answer"], data["kind"], data["ms"], data["measurement_id"]) == ("exact", "measured", 0.015, 3)
    assert data["problem"] == FORWARD.to_json()
    assert data["config"] == builtin_templates("forward")[0].defaults
    only = ["--template", FAMILY]  # others ship winners that promise more
    data = call(capsys, "best", "--op", "forward", "--T", "3000", "--device", "h200", *only)
    assert (data["answer"], data["found"]["T"], data["problem"]["T"]) == ("nearest", 1024, 3000)
    assert (data["ms"], data["found_ms"]) == (None, 0.015)
    assert data["expected_ms"] == pytest.approx(0.12, rel=0.4)
    assert data["sure"] == "plausible: timed for a problem 2.2 octaves away"
    assert not {"source", "plan"} & data.keys()
    data = call(capsys, "best", "--op", "forward", "--device", "h200", "--source", "--plan")
    assert "__global__" in data["source"]
    assert data["plan"]["steps"]
    data = call(capsys, "best", "--op", "backward", "--HS", "128", "--dtype", "bf16", "--device", "t4")
    assert (data["answer"], data["kind"], data["ms"]) == ("default", "none", None)


def test_best_for_people(db: Path, capsys: Capture) -> None:
    assert run(["best", "--op", "forward", "--device", "h200"]) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["answer"] == "exact"
    assert lines["time"] == "0.015 ms (measured) on h200 from your database"
    assert lines["device"] == "NVIDIA H200"
    near = ["--template", FAMILY, "--T", "3000", "--device", "h200"]
    assert run(["best", "--op", "forward", *near]) == 0
    pairs = [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    lines = dict(pairs)
    assert "time" not in lines
    assert lines["expected"].endswith(" ms, not measured")
    assert lines["sure"] == "plausible: timed for a problem 2.2 octaves away"
    assert ["note", f"tuned for {FORWARD}"] in pairs


def test_best_prints_the_source(db: Path, capsys: Capture) -> None:
    assert run(["best", "--op", "forward", "--device", "h200", "--source"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("// autotune: forward/")
    assert "__global__" in text


def test_best_refuses_what_makes_no_sense(db: Path, capsys: Capture) -> None:
    assert "unknown op 'sideways'" in fails(capsys, 2, "best", "--op", "sideways")
    assert "T=0 must be at least 1" in fails(capsys, 2, "best", "--T", "0")
    assert "takes one problem" in fails(capsys, 2, "best", "--T", "512,1024")
    assert "malformed database URL" in fails(capsys, 2, "best", "--db", "postgresql+psycopg://h:port/x")
    assert "no template computes" in fails(capsys, 3, "best", "--HS", "4096")


def test_lists(db: Path, capsys: Capture) -> None:
    winners = call(capsys, "list", "winners", "--own")
    assert [(row["id"], row["device"], row["kind"], row["ms"]) for row in winners] == [
        (4, "cpu:h200", "estimated", 0.005),
        (3, "h200", "measured", 0.015),
    ]
    trials = call(capsys, "list", "trials", "--device", "h200", "--limit", "2")
    assert [(row["id"], row["stage"], row["outcome"]) for row in trials] == [(3, "final", "ok"), (2, "trial", "ok")]
    assert [row["id"] for row in call(capsys, "list", "trials", "--outcome", "wrong_result")] == [1]
    (problem,) = call(capsys, "list", "problems", "--device", "h200")
    assert (problem["problem"], problem["trials"], problem["ok"]) == (FORWARD.to_json(), 2, 1)
    assert (problem["measured ms"], problem["estimated ms"]) == (0.015, None)
    devices = call(capsys, "list", "devices")
    assert [(row["device"], row["trials"]) for row in devices] == [("cpu:h200", 1), ("h200", 2)]


LISTS = ("problems", "winners", "searches", "trials", "devices", "gpus")


@pytest.mark.parametrize("what", LISTS)
def test_every_list_honours_its_limit(what: str, searched: Path, capsys: Capture) -> None:
    assert len(call(capsys, "list", what)) > 1
    assert len(call(capsys, "list", what, "--limit", "1")) == 1


@pytest.mark.parametrize(
    ("option", "takers"),
    [
        (("--op", "forward"), "problems winners searches trials"),
        (("--T", "64"), "problems winners searches trials"),
        (("--device", "h200"), "problems winners searches trials devices"),
        (("--template", "simt"), "winners trials"),
        (("--outcome", "ok"), "trials"),
        (("--sort", "ms"), "winners searches trials"),
        (("--full-precision",), "winners"),
        (("--shipped",), "winners"),
        (("--own",), "winners"),
        (("--db", "a.db"), "problems winners searches trials devices"),
    ],
)
def test_a_list_takes_an_option_or_refuses_it(
    option: tuple[str, ...], takers: str, db: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(db.parent)
    for what in LISTS:
        if what in takers.split():
            assert run(["list", what, *option]) == 0
            capsys.readouterr()
        else:
            said = fails(capsys, 2, "list", what, *option)
            assert f"{option[0]} means nothing for a list of {what}; it is for {takers.replace(' ', ', ')}" in said


def test_winners_before_any_search_are_the_shipped_ones(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "none.db"))
    rows = call(capsys, "list", "winners")
    assert [row["source_hash"] for row in rows] == [line.source_hash for line in shipped_winners()]
    assert rows == call(capsys, "list", "winners", "--shipped")
    assert run(["list", "winners", "--op", "backward", "--sort", "ms", "--limit", "3"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "no database yet: these winners come with the package\n"
    fastest = min((line.measurement.ms or 0.0, line) for line in shipped_winners() if line.problem.op == "backward")[1]
    shown = captured.out.splitlines()
    assert len(shown) - next(i for i, line in enumerate(shown) if line.split()[0] == "id") == 4
    assert any(fastest.source_hash in line for line in shown)
    assert call(capsys, "show", fastest.source_hash)["winner"] is True
    full = call(capsys, "list", "winners", "--full-precision", "--op", "forward")
    assert {row["template"] for row in rows} > {row["template"] for row in full} > set()
    assert "flash_tf32x3" not in {row["template"] for row in full}
    assert call(capsys, "list", "winners", "--device", "a100") == []
    assert "there is no database" in fails(capsys, 1, "list", "trials")
    assert "give one" in fails(capsys, 2, "list", "winners", "--shipped", "--db", "a.db")
    assert "there is no database" in fails(capsys, 1, "list", "winners", "--own")


def test_a_list_for_people_is_not_cut(db: Path, capsys: Capture) -> None:
    assert run(["list", "--own"]) == 0
    shared, heading, *rows = capsys.readouterr().out.splitlines()
    assert shared == f"all rows: problem {FORWARD.key}"
    assert heading.split() == ["id", "device", "template", "stage", "outcome", "ms", "kind", "configuration"]
    assert candidate(2).key.removeprefix("simt ") in rows[0]
    assert len(rows) == 2
    assert all(line == line.rstrip() for line in (shared, heading, *rows))


def test_what_all_rows_have_in_common_is_said_once(db: Path, capsys: Capture) -> None:
    with open_store() as store:
        for T, BLOCK_M in ((512, 16), (2048, 64)):
            tuned = make_candidate("mine", "h", {"BLOCK_M": BLOCK_M, "WARPS": 4})
            store.record(H200, FORWARD.replace(T=T), tuned, SOURCE, ok(T / 1000))
    assert run(["list", "trials", "--template", "mine"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["all", "rows:", "device", "h200"],
        ["all", "rows:", "problem", *(word for word in FORWARD.key.split() if not word.startswith("T="))],
        ["all", "rows:", "template", "mine", "WARPS=4"],
        ["id", "stage", "outcome", "ms", "kind", "problem", "configuration"],
        ["6", "trial", "ok", "2.048", "measured", "T=2048", "BLOCK_M=64"],
        ["5", "trial", "ok", "0.512", "measured", "T=512", "BLOCK_M=16"],
    ]
    assert run(["list", "trials", "--limit", "1"]) == 0
    assert FORWARD.replace(T=2048).key in capsys.readouterr().out.splitlines()[1]


def test_searches_beside_one_another(searched: Path, capsys: Capture) -> None:
    good, bad = call(capsys, "list", "searches", "--T", "64")
    assert (good["sampler"], good["seed"], good["state"], good["trials"], good["ok"]) == ("tpe", 7, "finished", 3, 3)
    assert (good["best ms"], good["kind"], good["at trial"], good["x best"]) == (2.0, "measured", 2, 1.0)
    assert (bad["best ms"], bad["at trial"], bad["x best"]) == (8.0, 1, 4.0)
    assert good["problem"] == OTHER.to_json()
    assert [row["id"] for row in call(capsys, "list", "searches", "--sort", "new")] == [2, 1]
    assert call(capsys, "list", "searches", "--T", "65") == []
    assert run(["list", "searches"]) == 0
    heading, first, _ = capsys.readouterr().out.splitlines()
    assert heading.split()[5:] == ["trials", "ok", "best", "ms", "kind", "at", "trial", "x", "best", "begun", "problem"]
    assert first.split()[0] == "1"


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (("--T", "64"), [8, 7, 6, 5]),
        (("--T", "64,1024", "--limit", "5"), [8, 7, 6, 5, 4]),
        (("--T", "1024", "--device", "h200"), [3, 2, 1]),
        (("--causal", "--T", "1024"), [4, 3, 2, 1]),
        (("--no-causal",), []),
        (("--set", "dtype=bf16"), []),
        (("--dtype", "fp16", "--T-kv", "64", "--sort", "ms"), [6, 7, 5, 8]),
    ],
)
def test_trials_of_some_problems(filters: tuple[str, ...], ids: list[int], searched: Path, capsys: Capture) -> None:
    assert [row["id"] for row in call(capsys, "list", "trials", *filters)] == ids


def test_fields_filter_every_list_of_problems(searched: Path, capsys: Capture) -> None:
    assert [row["id"] for row in call(capsys, "list", "winners", "--own", "--T", "1024")] == [4, 3]
    assert [row["id"] for row in call(capsys, "list", "winners", "--own", "--T", "64")] == [6]
    assert call(capsys, "list", "winners", "--own", "--T", "63") == []
    (problem,) = call(capsys, "list", "problems", "--T", "64")
    assert (problem["problem"]["T"], problem["trials"]) == (64, 4)
    shipped = call(capsys, "list", "winners", "--shipped", "--T", "1024", "--HS", "64", "--op", "backward")
    assert {(row["problem"]["T"], row["problem"]["HS"], row["problem"]["op"]) for row in shipped} == {
        (1024, 64, "backward")
    }


def test_winners_are_yours_and_then_those_that_come_with_the_package(db: Path, capsys: Capture) -> None:
    rows = call(capsys, "list", "winners")
    assert [(row["id"], row["origin"]) for row in rows[:3]] == [(4, "own"), (3, "own"), (None, "shipped")]
    assert len(rows) == 2 + len(shipped_winners())
    assert run(["list", "--op", "forward", "--T", "1024", "--HS", "64"]) == 0
    heading = next(line for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("id"))
    assert heading.split()[:2] == ["id", "origin"]


def test_json_has_objects_and_where_a_record_is_from(searched: Path, capsys: Capture) -> None:
    newest, *_ = call(capsys, "list", "trials")
    assert newest["config"] == candidate(10).config
    assert newest["problem"] == OTHER.to_json()
    assert (newest["search"], newest["origin"], newest["stage"]) == (2, "own", "trial")
    assert newest["date"].startswith("20")


@pytest.mark.parametrize("what", LISTS)
def test_lists_for_spreadsheets(what: str, searched: Path, capsys: Capture) -> None:
    rows = call(capsys, "list", what, "--limit", "3")
    assert run(["list", what, "--csv", "--limit", "3"]) == 0
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(read) == len(rows)
    for text, row in zip(read, rows, strict=True):
        for name, value in {**row.get("problem", {}), **row}.items():
            if isinstance(value, str | int) and not isinstance(value, bool):
                assert text[name] == str(value)
        for name, value in row.get("config", {}).items():
            assert text[f"config.{name}"] == str(value)
    assert "give one of them" in fails(capsys, 2, "list", what, "--csv", "--json")


def test_lists_by_time_template_and_outcome(db: Path, capsys: Capture) -> None:
    assert [row["id"] for row in call(capsys, "list", "trials", "--sort", "ms")] == [4, 2, 3]
    assert [row["id"] for row in call(capsys, "list", "trials", "--sort", "ms", "--device", "h200")] == [2, 3]
    assert [row["id"] for row in call(capsys, "list", "trials", "--template", candidate(1).template)] == [4, 1]
    assert [row["id"] for row in call(capsys, "list", "winners", "--own", "--sort", "new")] == [4, 3]
    assert [row["id"] for row in call(capsys, "list", "winners", "--template", candidate(1).template)] == [4]
    assert [row["id"] for row in call(capsys, "list", "winners", "--db", str(db))] == [4, 3]
    (row,) = call(capsys, "list", "trials", "--outcome", "wrong_result")
    assert row["message"] == wrong().message
    assert run(["list", "trials", "--outcome", "wrong_result"]) == 0
    heading, shown = capsys.readouterr().out.splitlines()
    assert heading.endswith("message")
    assert shown.endswith(wrong().message)


def test_show_a_winner_with_its_history(db: Path, capsys: Capture) -> None:
    data = call(capsys, "show", "3")
    assert (data["id"], data["winner"], data["stage"]) == (3, True, "final")
    assert data["measurement"]["timing"]["median_ms"] == 0.015
    assert [(item["id"], item["ms"]) for item in data["history"]] == [(2, 0.0125), (3, 0.015)]
    assert [item["id"] for item in data["improvements"]] == [2]
    assert call(capsys, "show", "ab" * 8)["id"] == 2  # the hash in an exported file
    assert run(["show", "3"]) == 0
    text = capsys.readouterr().out
    assert "3 (winner)" in text
    assert "attend: 96 registers, 0 B spilled, 49152 B shared memory, 128 threads, occupancy 25%" in text


def test_show_a_shipped_winner_by_the_hash_of_its_export(tmp_path: Path, capsys: Capture) -> None:
    line = shipped_winners()[0]
    data = call(capsys, "show", line.source_hash, "--db", str(tmp_path / "none.db"))
    assert (data["winner"], data["problem"], data["config"]) == (True, line.problem.to_json(), line.candidate.config)
    assert run(["show", line.source_hash, "--db", str(tmp_path / "none.db")]) == 0
    assert "shipped (winner)" in capsys.readouterr().out
    assert "there is no database" in fails(capsys, 1, "show", "0123456789abcdef", "--db", str(tmp_path / "none.db"))


def test_show_a_failed_trial(db: Path, capsys: Capture) -> None:
    data = call(capsys, "show", "1")
    assert (data["winner"], data["measurement"]["outcome"]) == (False, "wrong_result")
    assert data["measurement"]["verification"]["checks"][0]["max_abs_error"] == {"$float": "nan"}
    assert run(["show", "1"]) == 0
    assert "out nan of 2.00e-03" in capsys.readouterr().out
    assert "there is no record '99'" in fails(capsys, 2, "show", "99")
