"""The rows of the benchmarks: what they are, how they are divided, how a campaign goes through them."""

import argparse
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import AutotuneError
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners
from autotune.tuning.search_options import Options
from benchmarks import search_rows
from benchmarks.allowance import LEAD, Allowance
from benchmarks.merge_winners import is_current, shipped
from benchmarks.prefetch import References
from benchmarks.rows import Row, add_row_options, chosen_rows, default_rows, grouped, peer_rows, shard
from benchmarks.search_rows import Campaign, ordered, subject_of


def test_the_recorded_table_has_its_82_problems() -> None:
    assert Counter(row.group[:3] for row in peer_rows()) == {
        (op, dtype, HS): count
        for op in ("forward", "backward")
        for (dtype, HS), count in {
            ("fp16", 32): 2, ("fp16", 64): 15, ("fp16", 128): 12, ("fp16", 256): 6, ("bf16", 128): 1,
            ("fp32", 64): 3, ("fp32", 128): 2,
        }.items()
    }  # fmt: skip
    assert len({row.problem for row in (*peer_rows(), *default_rows())}) == 82 + 12


def test_recorded_figures_are_those_of_the_table() -> None:
    row = next(row for row in peer_rows() if row.label == "backward fp16 HS=64 causal T=4096 B=4 NH=32")
    assert row.recorded["kernel"] == {"flash": 3.02332, "cudnn": 1.78054, "flash4": 1.40856}
    assert row.recorded_ratio("cudnn", "flash4") == pytest.approx(1.264, abs=1e-3)
    assert row.recorded_ratio("cudnn", "math") is None


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_row_options(parser)
    return parser.parse_args(arguments)


def test_rows_are_chosen_by_their_fields() -> None:
    chosen = chosen_rows(options("--op", "backward", "--dtype", "fp16", "--HS", "256,32", "--causal", "1"))
    assert {row.group for row in chosen} == {("backward", "fp16", 256, True), ("backward", "fp16", 32, True)}
    assert sorted(row.problem["T"] for row in chosen) == [1024, 4096, 4096, 16384]
    with pytest.raises(ValueError, match="--set 'mine' is not one of peers, default"):
        chosen_rows(options("--set", "mine"))
    with pytest.raises(ValueError, match="no shard 2/2"):
        chosen_rows(options("--shard", "2/2"))


def test_shards_are_whole_groups_of_about_equal_weight() -> None:
    rows = [*peer_rows(), *default_rows()]
    parts = [shard(rows, index, 2) for index in range(2)]
    assert sorted(row.label for part in parts for row in part) == sorted(row.label for row in rows)
    groups = [{row.group for row in part} for part in parts]
    assert not groups[0] & groups[1]
    assert abs(len(parts[0]) - len(parts[1])) <= 4
    flops = [sum(row.flops for row in part) for part in parts]
    assert max(flops) / min(flops) < 1.3


def test_a_group_begins_in_the_middle() -> None:
    rows = ordered([row for row in peer_rows() if row.group == ("forward", "fp16", 128, True)])
    assert [row.problem["T"] for row in rows] == [2048, 4096, 1024, 8192, 512, 16384]


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_rows_of_a_group_share_their_builds(op: str) -> None:
    """B, NH and T are arguments of the fused kernels: what is compiled does not depend on them."""
    rows = [row for row in (*peer_rows(), *default_rows()) if row.problem.op == op]
    for members in [m for m in grouped(rows) if m[0].group[2:] == (64, True)]:
        first = members[0].problem
        for template in subject_of(members[0], "fused").templates:
            if template.why_unsupported(first, gpu("h200")) is None:
                config = Space(template, first, gpu("h200")).default()
                bodies = {render(template, row.problem, config, gpu("h200")).body for row in members}
                assert len(bodies) == 1, (template.name, members[0].group)


def test_fp16_rows_are_searched_on_tensor_cores_alone() -> None:
    names = {
        row.problem.dtype: subject_of(row, "fused").templates for row in peer_rows() if row.problem.op == "forward"
    }
    assert "flash_mma" in {template.name for template in names["fp16"]}
    assert "flash_simt" not in {template.name for template in names["fp16"]}
    assert "flash_simt" in {template.name for template in names["fp32"]}
    everything = {template.name for template in subject_of(peer_rows()[0], "all").templates}
    assert everything == {t.name for t in builtin_templates("forward") if not t.front.historical}


# --- time


def rows_of(*lengths: int, HS: int = 64) -> list[Row]:
    return [Row(get_op("forward").problem(B=1, NH=1, T=T, HS=HS)) for T in lengths]


def test_time_is_divided_by_rows_and_groups() -> None:
    one, two = rows_of(64, 128, 256), rows_of(64, HS=32)
    allowance = Allowance(100.0, 0.0)
    shares = LEAD + 2 + LEAD
    left = 100.0 - 4 * 3.0
    assert allowance.share(one[0], [*one[1:], *two], set()) == pytest.approx(left * LEAD / shares, rel=1e-3)
    assert allowance.share(one[1], [one[2]], {one[0].group}) == pytest.approx((100 - 6) / 2, rel=1e-3)
    allowance.note(given=5.0, took=15.0)
    assert allowance.share(one[1], [one[2]], {one[0].group}) == pytest.approx((100 - 20) / 2, rel=1e-3)
    assert allowance.share(one[1], one * 100, {one[0].group}) == 2.0
    assert not allowance.up
    assert Allowance(1e-9, 0.0).up


def test_time_a_row_needs_no_total() -> None:
    rows = rows_of(64, 128)
    allowance = Allowance(None, 5.0)
    assert allowance.share(rows[0], rows[1:], set()) == 5.0 * LEAD
    assert allowance.share(rows[1], [], {rows[0].group}) == 5.0
    assert not allowance.up


# --- campaign


@dataclass
class NoReferences:
    """Says which rows are ready."""

    late: frozenset[Problem] = frozenset()

    def next_of(self, problems: list[Problem]) -> Problem:
        return next((problem for problem in problems if problem not in self.late), problems[0])


@dataclass
class Result:
    """What the campaign asks of a search's result."""

    best: Any = None
    stopped: str = "trials"
    interrupted: bool = False
    messages: dict[str, str] = field(default_factory=dict)
    trials: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"trials": self.trials}


@dataclass
class Recorder(Campaign):
    """Answers each length with what `answers` has for it."""

    answers: dict[int, Any] = field(default_factory=dict)
    asked: list[tuple[int, bool]] = field(default_factory=list)

    def _search(self, row: Row, seconds: float, follows: bool) -> Any:
        T = row.problem.integer("T")
        self.asked.append((T, follows))
        answer = self.answers.get(T, Result())
        if isinstance(answer, Exception):
            raise answer
        return answer


def recorder(rows: list[Row], report: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Recorder:
    monkeypatch.setattr(search_rows, "summary", lambda row, result: "as planned")
    unused: Any = None
    opener: Any = search_rows._opener("cpu")
    references: Any = more.pop("references", NoReferences())
    allowance = more.pop("allowance", Allowance(None, 1.0))
    return Recorder(rows, opener, unused, Options(), allowance, references, "fused", 12, report, **more)


def test_a_row_that_fails_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    rows = rows_of(64, 128, 256)
    answers = {64: AutotuneError("the worker did not come up"), 128: Result(best="a winner"), 256: Result()}
    campaign = recorder(rows, tmp_path / "rows.jsonl", monkeypatch, answers=answers)
    campaign.run()
    assert campaign.asked == [(64, False), (128, False), (256, True)]  # the first to find a winner leads
    assert campaign.failed == 2
    printed = capsys.readouterr().out
    assert "FAILED forward fp16 HS=64 causal T=64 B=1 NH=1: AutotuneError: the worker did not come up" in printed
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2


def test_a_row_without_a_result_in_its_time_is_searched_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {64: Result(stopped="timeout"), 128: Result(best="a winner", stopped="timeout")}
    campaign = recorder(rows_of(64, 128), tmp_path / "rows.jsonl", monkeypatch, answers=answers)
    campaign.run()
    assert [T for T, _ in campaign.asked] == [64, 64, 128]
    assert campaign.failed == 1


def test_rows_whose_references_are_there_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(64, 128, 256)
    references = NoReferences(frozenset({rows[0].problem}))
    campaign = recorder(rows, tmp_path / "rows.jsonl", monkeypatch, references=references)
    campaign.run()
    assert [T for T, _ in campaign.asked] == [128, 256, 64]


def test_an_interruption_or_the_end_of_the_time_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    rows = rows_of(64, 128)
    campaign = recorder(rows, tmp_path / "a", monkeypatch, answers={64: Result(interrupted=True)})
    campaign.run()
    assert [T for T, _ in campaign.asked] == [64]
    assert "no time left for forward fp16 HS=64 causal T=128 B=1 NH=1" in capsys.readouterr().out
    over = Allowance(10.0, 0.0, start=-math.inf)
    late = recorder(rows, tmp_path / "b", monkeypatch, allowance=over)
    late.run()
    assert late.asked == []
    assert "no time left for forward fp16 HS=64 causal T=64 B=1 NH=1" in capsys.readouterr().out


def test_references_are_made_by_other_processes(tmp_path: Path) -> None:
    from autotune.ops.expected import expectations, load

    problems = [row.problem for row in rows_of(32, 48)]
    with References(problems, 3, 1) as references:
        assert references.next_of(problems[1:]) == problems[1]
        path = references.take(problems[1])
        assert path is not None
        with path.open("rb") as file:
            made = load(file)
        assert references.take(get_op("forward").problem(T=7)) is None
        folder = path.parent
    assert not folder.exists()
    expected = expectations(get_op("forward"), problems[1], 3)
    assert made is not None
    assert [one.problem for one in made] == [problems[1]] * len(expected)
    for one, other in zip(made, expected, strict=True):
        assert {name: image.tobytes() for name, image in one.images.items()} == {
            name: image.tobytes() for name, image in other.images.items()
        }


# --- winners that ship


def test_current_winners_ship_and_what_is_stale_goes() -> None:
    line = shipped_winners()[0]
    hashes = {template.name: template.hash for template in builtin_templates(line.problem.op)}
    fresh = relabelled(line, hashes[line.candidate.template])
    other = relabelled(line, "0" * 16)
    assert is_current(fresh)
    assert not is_current(other)
    assert shipped([fresh, other], [], "h200") == [fresh]
    assert shipped([other], [], "h200") == []
    assert shipped([fresh], [], "h100") == []


def test_what_shipped_stays_where_nothing_newer_is_known() -> None:
    lines = [line for line in shipped_winners() if line.identity.name == "h200"]
    config = Space(find(lines[0]), lines[0].problem, gpu("h200")).default()
    old = relabelled(lines[0], "0" * 16, config)
    assert shipped([], [old], "h200") == [old]
    invalid = relabelled(lines[0], "0" * 16, {**config, next(iter(config)): 7})
    assert shipped([], [invalid], "h200") == []


def find(line: Line) -> Any:
    return next(t for t in builtin_templates(line.problem.op) if t.name == line.candidate.template)


def relabelled(line: Line, template_hash: str, config: Any = None) -> Line:
    from dataclasses import replace

    from autotune.core.candidate import make_candidate

    candidate = make_candidate(line.candidate.template, template_hash, config or line.candidate.config)
    return replace(line, candidate=candidate)
