"""Winners left out in turn: what is out of sight, what is priced, and how many candidates of quick tuning are good."""

import gzip
import json
from pathlib import Path

import pytest

from autotune.answers.lookup import best
from autotune.core.candidate import make_candidate
from autotune.core.resources import resource_root
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store.shipped import shipped_winners
from benchmarks import leave_one_out
from benchmarks.leave_one_out import GOOD, lefts, main, price, summary, trials
from benchmarks.left_out import left_out, siblings
from benchmarks.model_problems import model_problems
from benchmarks.model_table import mean

H200 = gpu("h200")
LINES = shipped_winners()
NAMED = {problem.name: problem.problem for problem in model_problems()}


def test_what_is_left_out_is_no_answer_and_comes_back() -> None:
    problem = NAMED["BERT-large, backward"]
    asked = problem.fields
    known = best("backward", db="/nowhere/none.db", device=H200, **asked)  # type: ignore[arg-type]
    with left_out([problem]):
        other = best("backward", db="/nowhere/none.db", device=H200, **asked)  # type: ignore[arg-type]
    again = best("backward", db="/nowhere/none.db", device=H200, **asked)  # type: ignore[arg-type]
    assert (known.answer, other.answer, again.answer) == ("exact", "nearest", "exact")
    assert other.found != problem


def test_a_start_timed_for_the_problem_is_left_out_too() -> None:
    """Whisper's cross-attention: its winner is a start of the family."""
    problem = NAMED["Whisper-large, cross, forward"]
    with left_out([problem]):
        alone = leave_one_out.quick(problem, H200)
    with left_out([]):
        whole = leave_one_out.quick(problem, H200)
    sizes = {"BLOCK_M": 64, "BLOCK_N": 80, "STAGES": 3, "MIN_BLOCKS": 3}
    assert any(candidate.config.items() >= sizes.items() for candidate in whole)
    assert not any(candidate.config.items() >= sizes.items() for candidate in alone)


def test_siblings_are_of_the_same_model_or_shape() -> None:
    by_problem = {line.problem: line for line in LINES}
    bert = by_problem[NAMED["BERT-large, forward"]]
    assert siblings(bert, LINES) == {NAMED["BERT-large, forward"], NAMED["BERT-large, backward"]}
    long = get_op("forward").problem(B=4, NH=16, T=4096, HS=128, dtype="fp16")
    found = siblings(by_problem[long], LINES)
    assert {long, long.replace(causal=False)} <= found
    assert all((p["B"], p["NH"], p["T"], p["HS"]) == (4, 16, 4096, 128) for p in found)


def test_a_price_is_of_the_same_sizes() -> None:
    config = {"BLOCK_M": 64, "STAGES": 2, "ORDER": 0}
    times = {make_candidate("one", "hash", config): 2.0, make_candidate("one", "hash", {**config, "STAGES": 3}): 1.0}
    assert price(make_candidate("one", "hash", config), times) == 2.0
    assert price(make_candidate("one", "hash", {**config, "ORDER": 1}), times) == 2.0
    assert price(make_candidate("one", "hash", {**config, "BLOCK_M": 128}), times) is None
    assert price(make_candidate("two", "hash", {**config, "ORDER": 1}), times) is None


def test_kept_times_are_of_problems_of_models_and_todays_parameters() -> None:
    known = trials()
    assert len(known) == 36
    assert set(known) <= set(NAMED.values())
    assert sum(map(len, known.values())) > 900
    assert all(ms > 0 for times in known.values() for ms in times.values())


def test_quick_tuning_has_something_good_in_nine_of_ten() -> None:
    """Of 36 problems of models; what was never timed counts for nothing."""
    rows = list(lefts(H200, models=True))
    assert len(rows) >= 34
    assert all(row.built <= 12 for row in rows)
    good = [row for row in rows if row.quick is not None and row.quick <= GOOD]
    assert len(good) >= 0.9 * len(rows), [(row.name, row.quick) for row in rows if row not in good]
    known = [row.look_up for row in rows if row.look_up is not None]
    assert mean(known) < 1.05
    assert max(known) < 1.25
    assert any("36" in line or "within 3 %" in line for line in summary(rows))


def test_records_become_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leave_one_out, "TRIALS", tmp_path / "kept.jsonl.gz")
    main(["--keep", str(resource_root("db") / "winners" / "h200.jsonl")])
    told = capsys.readouterr().out
    with gzip.open(tmp_path / "kept.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    winners = {line.problem.key for line in LINES if line.problem in set(NAMED.values())}
    assert {row["problem"] for row in rows} == winners
    assert told.startswith(f"{sum(len(row['trials']) for row in rows)} times in ")
