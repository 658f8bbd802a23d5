"""Winners of full precision beside faster ones of another arithmetic: kept, shipped, and found when asked for."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest

from autotune.answers.lookup import best
from autotune.cli.main import run
from autotune.core.candidate import Candidate
from autotune.core.measurement import KernelResources, Measurement
from autotune.core.problem import Problem
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus import present as detect
from autotune.ops.registry import get_op
from autotune.store import Store, entries, open_store
from autotune.store.choosing import best_of, full_versions
from autotune.store.json_lines import Line
from autotune.store.line_files import write_lines
from autotune.store.records import Stage
from autotune.store.transfer import export_file, import_file
from autotune.tuning import neighbours as neighbours_module
from autotune.tuning.choose import choose_families, choose_subject
from autotune.tuning.history import Records
from autotune.tuning.neighbours import neighbours
from benchmarks.merge_winners import shipped, winners_of
from benchmarks.rows import Row, default_rows, full_rows, peer_rows
from benchmarks.search_rows import has_winner, ordered, subject_of
from tests.store.store_records import H100, H200, SOURCE, ok

PROBLEM = get_op("forward").problem(dtype="fp32")
LONGER = PROBLEM.replace(T=2048, T_kv=2048)
FAST, FULL = "flash_tf32x3", "flash_simt"


def made(name: str, problem: Problem = PROBLEM) -> Candidate:
    space = Space(find_template(problem.op, name), problem, H200.spec)
    return space.candidate(space.default())


def line(
    name: str, ms: float, problem: Problem = PROBLEM, stage: Stage = "final", measurement: Measurement | None = None
) -> Line:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Line(
        record="winner", identity=H200, problem=problem, candidate=made(name, problem), source_hash=SOURCE, stage=stage,
        package_version="0.1.0", created_at=moment, measurement=measurement or ok(ms),
    )  # fmt: skip


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Line]]:
    """The winners that come with the package: none, until a test adds some."""
    added: list[Line] = []
    for module in (entries, neighbours_module):
        monkeypatch.setattr(module, "shipped_winners", lambda: tuple(added))
    monkeypatch.setattr(detect, "present_gpu", lambda index=0: None)
    entries._shipped.cache_clear()
    yield added
    entries._shipped.cache_clear()


@pytest.fixture
def store(tmp_path: Path, lines: list[Line]) -> Iterator[Store]:
    with open_store(tmp_path / "a.db") as opened:
        yield opened


def found(tmp_path: Path, *, full: bool = False, **fields: Any) -> tuple[str, str, float | None]:
    """Answer, family and time of a look-up in `a.db`."""
    asked = {"dtype": "fp32", "device": "h200", **fields}
    answer = best("forward", db=tmp_path / "a.db", full_precision=full, **asked)
    return answer.answer, answer.candidate.template, answer.found_ms


# --- look-ups


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_shipped_winners_of_both_kinds(tmp_path: Path, lines: list[Line], order: tuple[int, int]) -> None:
    both = [line(FAST, 1.0), line(FULL, 3.0)]
    lines += [both[i] for i in order]
    assert found(tmp_path) == ("exact", FAST, 1.0)
    assert found(tmp_path, full=True) == ("exact", FULL, 3.0)
    assert found(tmp_path, template=FULL) == ("exact", FULL, 3.0)
    assert found(tmp_path, T=2048) == ("nearest", FAST, 1.0)
    assert found(tmp_path, T=2048, full=True) == ("nearest", FULL, 3.0)
    assert found(tmp_path, device="h100", full=True) == ("architecture", FULL, 3.0)
    assert found(tmp_path, device="h100") == ("architecture", FAST, 1.0)


def test_a_fast_winner_of_older_code_does_not_leave_its_place_to_the_exact_one(
    tmp_path: Path, lines: list[Line]
) -> None:
    old = replace(line(FAST, 1.0), candidate=replace(made(FAST), template_hash="0" * 16))
    lines += [line(FULL, 3.0), old]
    assert found(tmp_path) == ("nearest", FAST, 1.0)
    assert found(tmp_path, full=True) == ("exact", FULL, 3.0)


def test_a_nearer_exact_winner_does_not_stand_before_a_fast_one(tmp_path: Path, lines: list[Line]) -> None:
    lines += [line(FULL, 3.0), line(FAST, 1.0), line(FAST, 3.2, LONGER), line(FULL, 9.0, LONGER)]
    assert found(tmp_path, T=1100) == ("nearest", FAST, 1.0)
    assert found(tmp_path, T=1900) == ("nearest", FAST, 3.2)
    assert found(tmp_path, T=1900, full=True) == ("nearest", FULL, 9.0)


def test_ones_own_records_of_both_kinds(tmp_path: Path, store: Store) -> None:
    for name, ms in ((FULL, 2.9), (FAST, 1.0)):
        store.record(H200, PROBLEM, made(name), SOURCE, ok(ms))
    assert found(tmp_path) == ("exact", FAST, 1.0)
    assert found(tmp_path, full=True) == ("exact", FULL, 2.9)
    final = store.record(H200, PROBLEM, made(FULL), SOURCE, ok(3.0), stage="final")
    assert not store.name_winner(final)  # a search of full precision ends so, whether the fastest was a finalist or not
    assert found(tmp_path) == ("exact", FAST, 1.0)
    assert found(tmp_path, full=True) == ("exact", FULL, 3.0)  # a finalist counts by its final, not by a lucky trial


def test_best_list_and_export_on_the_command_line(
    tmp_path: Path, lines: list[Line], store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    database = ["--db", str(tmp_path / "a.db"), "--json"]
    asked = ["--dtype", "fp32", "--device", "h200", *database]

    def printed(*arguments: str) -> Any:
        assert run(arguments) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    lines += [line(FAST, 1.0), line(FULL, 3.0)]
    assert [printed("best", *full, *asked)["ms"] for full in ([], ["--full-precision"])] == [1.0, 3.0]
    file = str(tmp_path / "a.cu")
    assert printed("export", "--full-precision", *asked, "-o", file)["template"] == FULL
    for name, ms in ((FULL, 2.9), (FAST, 1.0)):
        store.record(H200, PROBLEM, made(name), SOURCE, ok(ms))
    store.record(H200, get_op("matmul").problem(), made(FULL), SOURCE, ok(7.0))  # its family is none of the op's
    for full, names in (([], [FAST, FULL]), (["--full-precision"], [FULL, FULL])):
        assert [row["template"] for row in printed("list", "winners", *full, *database)] == names


def test_a_search_begins_with_the_fastest_of_its_families(store: Store, lines: list[Line]) -> None:
    lines += [line(FULL, 3.0), line(FAST, 1.0), line(FULL, 9.0, LONGER)]
    first = {}
    for full in (False, True):
        families = choose_families(
            choose_subject("forward", [FAST, FULL], full_precision=full).templates, PROBLEM, H200.spec
        )
        records = Records(store, H200, PROBLEM)
        first[full] = [candidate.template for candidate in neighbours(records, families, ("HS", "dtype", "causal"))]
    assert first == {False: [FAST, FULL], True: [FULL]}


# --- a database


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("stage", ["trial", "final"])
def test_importing_both_kinds_twice(tmp_path: Path, store: Store, order: tuple[int, int], stage: Stage) -> None:
    both = [line(FAST, 1.0, stage=stage), line(FULL, 3.0)]
    file = tmp_path / "h200.jsonl"
    write_lines(file, [both[i] for i in order])
    for added in (2, 0):
        report = import_file(store, file)
        assert (report.added, report.known) == (added, 2 - added)
        (winner,) = store.winners()
        assert winner.record.candidate == made(FAST)
        assert found(tmp_path, full=True) == ("exact", FULL, 3.0)


def test_a_trial_that_was_never_a_finalist_stands_before_slower_finalists(store: Store) -> None:
    store.record(H200, PROBLEM, made(FAST), SOURCE, ok(1.0))
    final = store.record(H200, PROBLEM, made(FULL), SOURCE, ok(3.0), stage="final")
    assert not store.name_winner(final)
    store.record(
        H200, PROBLEM, made(FAST), SOURCE, ok(1.2), stage="final"
    )  # it was one now, and a trial no longer does
    assert store.name_winner(final)


@pytest.mark.parametrize("stage", ["trial", "final"])
def test_a_winner_that_spills_yields_where_none_may(store: Store, stage: Stage) -> None:
    spilling = replace(ok(1.0), resources=(KernelResources("attend", 255, 64, 0, 0, 128, 0.25),))
    first = store.record(H200, PROBLEM, made(FAST), SOURCE, spilling, stage=stage)
    store.name_winner(first)
    other = store.record(H200, PROBLEM, made(FULL), SOURCE, ok(3.0), stage=stage)
    assert not store.name_winner(other)
    assert store.name_winner(other, spills=False)
    (winner,) = store.winners()
    assert winner.record.id == other
    assert best_of(store, PROBLEM, "h200", {FAST: made(FAST).template_hash}, spills=False) is None


@pytest.mark.parametrize("stage", ["trial", "final"])
def test_the_choice_against_spills_outlives_an_export(tmp_path: Path, store: Store, stage: Stage) -> None:
    """A faster trial that spills was passed over: an import of all records ends with the same winner."""
    spilling = replace(ok(1.0), resources=(KernelResources("attend", 255, 64, 0, 0, 128, 0.25),))
    store.record(H200, PROBLEM, made(FAST), SOURCE, spilling)
    assert store.name_winner(store.record(H200, PROBLEM, made(FULL), SOURCE, ok(2.1), stage=stage), spills=False)
    file = tmp_path / "all.jsonl"
    export_file(store, file)
    with open_store(tmp_path / "other.db") as other:
        import_file(other, file)
        (winner,) = other.winners()
    assert (winner.record.candidate, winner.record.measurement.ms) == (made(FULL), 2.1)


def test_an_import_does_not_displace_a_faster_winner_of_ones_own_that_spills(tmp_path: Path, store: Store) -> None:
    file = tmp_path / "theirs.jsonl"
    write_lines(file, [line(FULL, 2.0)])
    spilling = replace(ok(1.0), resources=(KernelResources("attend", 255, 64, 0, 0, 128, 0.25),))
    mine = store.record(H200, PROBLEM, made(FAST), SOURCE, spilling, stage="final")
    store.name_winner(mine)
    import_file(store, file)
    (winner,) = store.winners()
    assert winner.record.id == mine


def test_a_lucky_trial_does_not_stand_before_finalists_of_its_families(store: Store) -> None:
    store.record(H200, PROBLEM, made(FAST), SOURCE, ok(1.9))
    final = store.record(H200, PROBLEM, made(FULL), SOURCE, ok(2.0), stage="final")
    versions = {name: made(name).template_hash for name in (FAST, FULL)}
    found = best_of(store, PROBLEM, "h200", versions)
    assert found is not None
    assert found.id == final


# --- what ships


def test_both_ship_where_the_fastest_is_not_of_full_precision(store: Store) -> None:
    store.record(H200, PROBLEM, made(FULL), SOURCE, ok(2.5))
    finals = [
        store.record(H200, PROBLEM, made(name), SOURCE, ok(ms), stage="final")
        for name, ms in ((FAST, 1.0), (FULL, 3.0))
    ]
    assert store.name_winner(finals[0])
    store.record(H100, PROBLEM, made(FULL), SOURCE, ok(2.0))
    store.record(H200, LONGER, made(FULL, LONGER), SOURCE, ok(9.0))
    assert not store.name_winner(finals[1])
    lines = shipped(winners_of(store, "h200"), [], "h200")
    assert [(one.problem, one.candidate.template, one.measurement.ms) for one in lines] == [
        (PROBLEM, FAST, 1.0), (PROBLEM, FULL, 3.0), (LONGER, FULL, 9.0),
    ]  # fmt: skip
    assert all(one.is_winner and one.identity == H200 for one in lines)


def test_what_shipped_before_of_either_kind() -> None:
    fast, full, new_fast, new_full = line(FAST, 1.0), line(FULL, 3.0), line(FAST, 1.1), line(FULL, 2.9)
    expected = [
        ([], [fast, full], [fast, full]),
        ([new_fast], [fast, full], [new_fast, full]),  # nothing new of full precision is known
        ([new_fast, new_full], [fast, full], [new_fast, new_full]),
        ([new_full], [fast, full], [new_full]),  # it won over the fast one
        ([line(FAST, 3.5)], [full], [full]),  # that of full precision is as fast as any
    ]
    for found_now, before, both in expected:
        for some in permutations(found_now):
            assert shipped(some, before, "h200") == both


def test_rows_of_full_precision_follow_their_twins() -> None:
    twins = [row for row in (*peer_rows(), *default_rows()) if row.problem.dtype == "fp32"]
    assert {row.problem for row in full_rows()} == {row.problem for row in twins}
    rows = ordered([*full_rows(), *peer_rows(), *default_rows()])
    for row, after in pairwise(rows):
        if after.full_precision:
            assert (row.problem, row.full_precision) == (after.problem, False)
    names = {template.name for template in subject_of(full_rows()[0], "fused").templates}
    assert FULL in names
    assert FAST not in names
    assert full_rows()[0].label.endswith(" full precision")


def test_when_a_row_of_full_precision_has_been_searched(store: Store) -> None:
    row = Row(PROBLEM, full_precision=True)
    store.record(H200, PROBLEM, made(FAST), SOURCE, ok(1.0), stage="final")
    store.record(H200, PROBLEM, made(FULL), SOURCE, ok(3.0))
    assert not has_winner(store, row, "h200")
    store.record(H200, PROBLEM, made(FULL), SOURCE, ok(3.0), stage="final")
    assert has_winner(store, row, "h200")
    found_best = best_of(store, PROBLEM, "h200", full_versions("forward"))
    assert found_best is not None
    assert (found_best.candidate, found_best.stage) == (made(FULL), "final")
