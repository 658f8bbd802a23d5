"""The benchmark on problems of real models: its problems, how a campaign goes through them, its table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.answers.best import Best
from autotune.answers.lookup import best
from autotune.bench.contender import Contender
from autotune.core.errors import LaunchError
from autotune.core.problem import Problem
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from benchmarks import model_rounds, models
from benchmarks.model_problems import ModelProblem, model_problems, shard
from benchmarks.model_rounds import GpuRounds
from benchmarks.model_table import doubts, summary, table
from benchmarks.models import Campaign, _parser, chosen_problems, newest, requests_of, rows_in, winners
from tests.bench.bench_doubles import FakeLab

H200 = gpu("h200")
KINDS = {"decode", "training", "images", "cross", "prompt", "encoder"}


def test_there_are_forty_problems_each_with_a_source() -> None:
    problems = model_problems()
    assert len(problems) == len({p.name for p in problems}) == len({p.problem for p in problems}) == 40
    assert all(p.source for p in problems)
    assert {p.problem.op for p in problems if p.kind == "training"} == {"forward", "backward"}


def test_every_beginning_has_all_kinds() -> None:
    problems = model_problems()
    for part in (problems, shard(problems, 0, 2), shard(problems, 1, 2)):
        assert {p.kind for p in part[:14]} == KINDS
    assert {p.kind for p in problems[:6]} == KINDS
    with pytest.raises(ValueError, match="no shard 2/2"):
        shard(problems, 2, 2)


def test_dimensions_are_those_published() -> None:
    fields = {p.name: p.problem for p in model_problems()}
    siglip = fields["SigLIP so400m/14, 384 pixels, backward"]
    assert (siglip["NH"], siglip["HS"], siglip["T"], siglip["causal"]) == (16, 72, 27 * 27, False)
    whisper = fields["Whisper-large, cross, forward"]
    assert (whisper["NH"], whisper["HS"], whisper["T"], whisper["T_kv"]) == (20, 64, 448, 1500)
    flux = fields["FLUX.1-dev, 1024 pixels, forward"]
    assert (flux["NH"], flux["HS"], flux["T"]) == (24, 128, (1024 // 16) ** 2 + 512)
    deepseek = fields["DeepSeek-V3, backward"]
    assert (deepseek["NH"], deepseek["HS"], deepseek["HS_v"]) == (128, 192, 128)


@dataclass
class FakeTuner:
    """Answers look-ups with the default; knows of no searches but their seconds."""

    asked: list[tuple[str, float | None]] = field(default_factory=list)
    fails: str = ""

    def look_up(self, problem: ModelProblem) -> tuple[Best, float]:
        if problem.name == self.fails:
            raise LaunchError("planted")
        asked: dict[str, Any] = problem.problem.fields
        found = best(problem.problem.op, db="/nowhere/none.db", device=H200, **asked)
        searched = sum(name == problem.name for name, _ in self.asked)
        return replace(found, candidate=replace(found.candidate, template=f"after {searched}")), 2.5

    def search(self, problem: ModelProblem, seconds: float | None) -> Any:
        self.asked.append((problem.name, seconds))
        return SimpleNamespace(best=object(), messages={}, trials=12 if seconds is None else 40, new=12)

    def end(self) -> None:
        pass


def fake_rounds(problem: Problem, ours: Mapping[str, Best]) -> dict[str, Any]:
    """The look-up takes 1.2, quick tuning's 1.1, the search's 1.0, FlashAttention-2 1.5."""
    names = [found.candidate.template for found in ours.values()]
    assert names == [f"after {i}" for i in range(len(names))]
    ms = {"look-up": 1.2, "quick": 1.1, "search": 1.0}
    assert problem.op in {"forward", "backward"}
    times = {**{name: ms[name] for name in ours}, "flash": 1.5, "cudnn": 0.9}
    return {"ms": times, "rounds": {}, "refused": {}, "difference": dict.fromkeys(ours, 1e-4)}


def campaign(folder: Path, tuner: FakeTuner, **more: Any) -> Campaign:
    return Campaign(model_problems()[:3], tuner, fake_rounds, folder / "rows.jsonl", **more)  # type: ignore[arg-type]


def test_a_campaign_measures_both_passes_once(tmp_path: Path) -> None:
    tuner = FakeTuner()
    campaign(tmp_path, tuner).run(models.PASSES)
    rows = rows_in(tmp_path / "rows.jsonl")
    assert [row["pass"] for row in rows] == ["look-up"] * 3 + ["tuned"] * 3
    assert [seconds for _, seconds in tuner.asked] == [None, 12.0] * 3
    assert rows[0]["ours"]["look-up"]["seconds"] == 0.0025
    assert rows[3]["ours"]["quick"]["trials"] == 12
    assert rows[3]["ms"] == {"look-up": 1.2, "quick": 1.1, "search": 1.0, "flash": 1.5, "cudnn": 0.9}
    again = FakeTuner()
    campaign(tmp_path, again).run(models.PASSES)
    assert not again.asked
    assert len(rows_in(tmp_path / "rows.jsonl")) == 6
    assert [row["pass"] for row in newest(rows)] == ["tuned"] * 3


def test_a_problem_that_fails_is_left_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = model_problems()[1].name
    broken = campaign(tmp_path, FakeTuner(fails=name))
    broken.run(("look-up",))
    assert broken.failed == 1
    assert f"FAILED {name}: LaunchError: planted" in capsys.readouterr().out
    assert name not in {row["name"] for row in rows_in(tmp_path / "rows.jsonl")}
    campaign(tmp_path, FakeTuner()).run(("look-up",))
    assert [row["name"] for row in rows_in(tmp_path / "rows.jsonl")][-1] == name


def test_no_problem_is_begun_when_the_time_is_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuner = FakeTuner()
    campaign(tmp_path, tuner, total=0.0, start=-1.0).run(("tuned",))
    assert not tuner.asked
    assert capsys.readouterr().out.count("no time left for") == 3


def test_searches_share_what_time_is_left(tmp_path: Path) -> None:
    tuner = FakeTuner()
    campaign(tmp_path, tuner, total=1e6, seconds=20.0).run(("tuned",))
    assert [seconds for _, seconds in tuner.asked] == [None, 20.0] * 3
    short = FakeTuner()
    (tmp_path / "other").mkdir()
    campaign(tmp_path / "other", short, total=30.0).run(("tuned",))
    first = next(seconds for _, seconds in short.asked if seconds is not None)
    assert first == pytest.approx(30 / 3 - 8, abs=0.1)


def row(name: str, kind: str, ms: Mapping[str, float], **more: Any) -> dict[str, Any]:
    problem = get_op("forward").problem(B=16, NH=32, NH_kv=8, T=1, T_kv=4096, HS=128, dtype="bf16", causal=False)
    said = {"answer": "start", "candidate": "flash_mma BLOCK_M=16"}
    return {
        "name": name, "kind": kind, "note": "", "pass": "tuned", "problem": problem.to_json(), "ms": ms,
        "nbytes": 4.3e8,
        "ours": {key: said for key in ("look-up", "quick", "search") if key in ms},
        "difference": {"search": 1e-3}, **more,
    }  # fmt: skip


ROWS = [
    row("one", "decode", {"look-up": 0.2, "quick": 0.1, "search": 0.1, "flash": 0.2, "cudnn": 0.09}),
    row("two", "images", {"look-up": 0.4, "quick": 0.44, "search": 0.4, "flash": 0.2}),
    row("three", "images", {"look-up": 0.4, "efficient": 1.6}),
]


def test_the_summary_has_geometric_means_and_worst_rows() -> None:
    lines = summary(ROWS)
    assert lines[0] == "look-up / search: geometric mean 1.414 of 2; worst 2.00 (one), 1.00 (two)"
    assert lines[1] == "  decode 2.000, images 1.000"
    assert lines[2] == "quick / search: geometric mean 1.049 of 2; worst 1.10 (two), 1.00 (one)"
    assert lines[4] == "best peer / ours: geometric mean 1.216 of 3; worst 0.50 (two), 0.90 (one), 4.00 (three)"
    assert lines[6] == "flash2 / ours: geometric mean 1.000 of 2; worst 0.50 (two), 2.00 (one)"


def test_the_table_has_times_ratios_and_what_bytes_take() -> None:
    lines = table(ROWS).splitlines()
    assert "| flash2 | cuDNN | efficient |" in lines[0]
    assert lines[2].startswith("| one | B=16 NH=32/8 T=1, T_kv=4096 HS=128 bf16 | start | 0.2000 | 0.1000 | 0.1000 |")
    assert lines[2].endswith("| 2.00 | 1.00 | 0.90 | 2.00 | 1.00 | flash_mma |")
    assert table([]) == "nothing was measured"


def test_wrong_outputs_are_named() -> None:
    wrong = row("four", "images", {"look-up": 0.4}, difference={"look-up": 0.5, "quick": float("nan"), "search": None})
    assert doubts([*ROWS, wrong]) == ["DIFFERS four: look-up by 5.00e-01", "DIFFERS four: quick by nan"]


def test_builds_ahead_are_those_of_the_lookup_and_of_quick_tuning(tmp_path: Path) -> None:
    problem = get_op("backward").problem(B=2, NH=10, T=512, T_kv=77, dtype="fp16", causal=False)
    looked_up = list(requests_of(problem, H200, tmp_path / "none.db", quick=False))
    assert [request.source.problem.op for request in looked_up] == ["backward", "forward"]
    quick = list(requests_of(problem, H200, tmp_path / "none.db", quick=True))
    assert 2 <= len(quick) <= 12
    assert len({request.source.hash for request in quick}) == len(quick)


def test_problems_are_chosen_by_name_and_kind(tmp_path: Path) -> None:
    parse = models._parser().parse_args
    chosen = chosen_problems(parse(["--out", str(tmp_path), "--only", "whisper,prompt"]))
    assert {p.kind for p in chosen} == {"decode", "cross", "encoder", "prompt"}
    assert len(chosen_problems(parse(["--out", str(tmp_path), "--shard", "1/2"]))) == 18


def test_the_table_of_what_was_measured_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {**ROWS[0], "name": model_problems()[0].name}
    (tmp_path / "rows.jsonl").write_text(json.dumps(one) + "\n")
    assert models.main(["--out", str(tmp_path), "--table"]) == 0
    assert "look-up / search: geometric mean 2.000 of 1" in capsys.readouterr().out


class Timed(Contender):
    """Takes `ms`; gives its name as output, or raises."""

    def __init__(self, lab: FakeLab, name: str, ms: float, why: str = "", raises: str = "") -> None:
        self.name = self.title = name
        self._lab, self._ms, self._why, self._raises = lab, ms, why, raises

    def why_not(self, problem: Problem) -> str | None:
        return self._why or None

    def call(self, problem: Problem, tensors: Any) -> Any:
        def call() -> dict[str, str]:
            if self._raises:
                raise RuntimeError(self._raises)
            self._lab.ms, self._lab.last = self._ms, self.name
            return {"out": self.name}

        return call


def test_rounds_time_each_configuration_once_and_every_peer_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = FakeLab()
    peers = (Timed(lab, "flash", 1.5), Timed(lab, "cudnn", 0.9), Timed(lab, "efficient", 9.0, "HS=40 is too odd"))
    monkeypatch.setattr(model_rounds, "chosen_peers", lambda _: (*peers, Timed(lab, "flash4", 1.0, raises="no\nmore")))
    monkeypatch.setattr(model_rounds, "difference", lambda mine, other: (mine["out"], other["out"]))
    times = {"look-up": 1.2, "quick": 1.1}
    monkeypatch.setattr(GpuRounds, "_ours", lambda _, name, *__: Timed(lab, name, times[name]))
    problem = get_op("forward").problem(HS=40)
    found = best("forward", db="/nowhere/none.db", device=H200, HS=40)
    other = replace(found, candidate=replace(found.candidate, template="another"))
    row = GpuRounds(lab, None)(problem, {"look-up": found, "quick": other, "search": found})  # type: ignore[arg-type]
    assert row["ms"] == {"look-up": 1.2, "quick": 1.1, "search": 1.2, "flash": 1.5, "cudnn": 0.9}
    assert row["refused"] == {"efficient": "HS=40 is too odd", "flash4": "no"}
    assert row["difference"] == {"look-up": ("look-up", "flash"), "quick": ("quick", "flash")}
    assert lab.log == ["look-up", "quick", "flash", "cudnn"] * 3
    assert lab.emptied_times == 1


def test_problems_are_chosen_in_the_order_asked() -> None:
    """Names have commas, so texts may be told apart by bars."""
    names = ["BERT-large, forward", "SDXL, text, backward", "FLUX.1-dev, 1024 pixels, forward"]
    options = _parser().parse_args(["--out", "x", "--only", "|".join(names)])
    assert [problem.name for problem in chosen_problems(options)] == names
    commas = _parser().parse_args(["--out", "x", "--only", "bert,gpt-2"])
    assert {problem.name.split(",")[0] for problem in chosen_problems(commas)} == {"BERT-large", "GPT-2 XL"}


def test_a_shipped_winner_stands_for_a_search(tmp_path: Path) -> None:
    tuner, first = FakeTuner(), model_problems()[0]
    shipped = replace(tuner.look_up(first)[0], candidate=replace(tuner.look_up(first)[0].candidate, template="after 2"))
    campaign(tmp_path, tuner, shipped={first.name: shipped}).run(("tuned",))
    assert (first.name, None) in tuner.asked
    assert (first.name, 12.0) not in tuner.asked
    rows = {row["name"]: row for row in rows_in(tmp_path / "rows.jsonl")}
    assert rows[first.name]["ours"]["search"]["candidate"].startswith("after 2")
    assert len(tuner.asked) == 5


def test_winners_are_those_that_ship() -> None:
    models = model_problems()
    other = replace(models[0], name="another length", problem=models[0].problem.replace(T=4321, T_kv=4321))
    found = winners([*models, other], H200)
    assert set(found) <= {model.name for model in models}  # the other has none; nor has one whose machine code changed
    assert found["BERT-large, backward"].ms is not None
