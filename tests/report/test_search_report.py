"""What a search shows: progress lines, the table, the next command."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune.answers.best import Best
from autotune.checker.target import find_target
from autotune.cli.main import build_app
from autotune.cli.options import parse_value, split_setting
from autotune.core.arithmetic import ARITHMETICS
from autotune.core.candidate import Candidate, make_candidate
from autotune.core.measurement import KernelResources, Measurement, OutputCheck, Timing, Verification
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.words import clock, number
from autotune.families.template import find_template
from autotune.families.traits import Traits
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.report import results
from autotune.report.progress import ProgressDisplay, time_left
from autotune.report.results import (
    Asked,
    best_lines,
    next_command,
    no_winner,
    other_answer,
    shared_lines,
    summary_lines,
    sweep_columns,
    sweep_rows,
    sweep_shared,
    table_columns,
    table_rows,
)
from autotune.tuning import summary
from autotune.tuning.evaluator import Load
from autotune.tuning.events import Progress
from autotune.tuning.ledger import Entry
from autotune.tuning.result import Ranked, SearchResult
from tests.search_doubles import PROBLEM

SMALL = PROBLEM.replace(B=1, NH=2, NH_kv=2)
CHECKS = (OutputCheck("out", 0.001, 0.004, 0, (0, 0, 1, 2)), OutputCheck("lse", 1e-6, 2e-6, 0, (0, 0, 1)))
RESOURCES = (KernelResources("a", 40, 0, 0, 2048, 128, 0.5), KernelResources("b", 168, 16, 1024, 48 * 1024, 256, 0.25))


def ranked(ms: float, **config: int) -> Ranked:
    timing = Timing("estimated", ms, ms, ms, ms, 0, "estimate: roofline")
    measurement = Measurement(Outcome.OK, "", timing, Verification(SMALL.key, CHECKS, 2, 2), RESOURCES, 1.5, 0.5)
    return Ranked(make_candidate("tiled", "hash", config), measurement, 1, ms, 2.0 / ms, 100.0 / ms)


def result() -> SearchResult:
    table = (ranked(0.5, M=32, N=64), ranked(0.8, M=64, N=64))
    return SearchResult(
        problem=PROBLEM, device="cpu:h200", title="NVIDIA H200", estimated=True, executed=SMALL, best=table[0],
        table=table, trials=9, resumed=4, new=5, outcomes={Outcome.OK: 7, Outcome.WRONG_RESULT: 2},
        messages={Outcome.WRONG_RESULT: "tiled M=1: out: error 3"}, space_size=1234, asked=12, duplicates=3,
        seconds=75.2, build_seconds=20.0, device_seconds=30.0, stopped="timeout", database="here.db",
    )  # fmt: skip


def test_estimates_are_called_estimates_everywhere() -> None:
    assert "est. ms" in ">".join(table_columns(result()))
    assert any("ESTIMATES for NVIDIA H200" in line for line in summary_lines(result()))
    assert list(best_lines(result())) == ["best: 0.5 ms (estimate), tiled M=32 N=64"]
    assert result().to_json()["kind"] == "estimated"
    measured = replace(result(), estimated=False)
    assert (
        "estimate" not in " ".join([*table_columns(measured), *summary_lines(measured), *best_lines(measured)]).lower()
    )
    assert measured.to_json()["kind"] == "measured"


def test_the_summary_says_what_was_executed_and_how_it_went() -> None:
    lines = list(summary_lines(result()))
    assert lines[0] == f"{PROBLEM} on NVIDIA H200"
    assert lines[1] == (
        "9 trials, 4 of them from earlier runs (ok 7, wrong_result 2) in 1:15: the time is up; "
        "1,234 valid configurations"
    )
    free = replace(result(), resumed=0, new=9, outcomes={Outcome.OK: 9, Outcome.INFEASIBLE: 3})
    assert list(summary_lines(free))[1] == (
        "9 trials (ok 9, infeasible 3) in 1:15: the time is up; "
        "1,234 valid configurations (3 proposals outside them ruled out unbuilt)"
    )
    ruled_out = replace(free, messages={Outcome.INFEASIBLE: "tiled M=3: M % 2 == 0"})
    assert "first infeasible: tiled M=3: M % 2 == 0" in list(summary_lines(ruled_out))
    assert lines[2] == "4 candidates a minute; compile 20 s, device 30 s"
    assert lines[3] == "first wrong_result: tiled M=1: out: error 3"
    assert lines[-1] == f"executed and verified on the emulator as {SMALL}"


def test_where_the_time_went_is_told_of_measurements() -> None:
    timed = replace(result(), timeline={"building": 0.42, "device": 1.3, "verdict": 3.04})
    told = "first build begun 0.4 s, device open 1.3 s, first verdict 3.0 s"
    assert told not in list(summary_lines(timed))
    assert told in list(summary_lines(replace(timed, estimated=False)))
    assert timed.to_json()["timeline"] == {"building": 0.42, "device": 1.3, "verdict": 3.04}


def test_sampled_verification_is_mentioned() -> None:
    one = ranked(0.5, M=32)
    verification = Verification(SMALL.key, CHECKS, 5, 48)
    sampled = replace(one, measurement=replace(one.measurement, verification=verification))
    lines = summary_lines(replace(result(), best=sampled))
    assert "compared 5 of 48 independent parts of each result" in list(lines)


def test_the_table() -> None:
    rows = list(table_rows(result()))
    assert rows[0] == [
        "1", "tiled", "0.5", "4.00", "200.0", "1e-06", "2e-06", "168", "16", "50176", "25%", "M=32",
    ]  # fmt: skip
    assert rows[1][-1] == "M=64"
    assert len(table_columns(result())) == len(rows[0])
    assert list(shared_lines(result())) == ["all rows: N=64"]


def test_what_rows_have_in_common_is_said_of_each_family() -> None:
    other = replace(ranked(0.9), candidate=make_candidate("naive", "hash", {"P": 1}))
    more = replace(result(), table=(*result().table, other, replace(other, ms=1.0)))
    assert list(shared_lines(more)) == ["all rows of tiled: N=64", "all rows of naive: P=1"]
    assert list(shared_lines(replace(result(), table=result().table[:1]))) == []


def test_ties_of_estimates() -> None:
    assert list(best_lines(replace(result(), ties=2)))[1] == (
        "tied with 2 others: estimates within 0.1% do not tell them apart"
    )
    entries = [Entry(one.candidate, ranked(ms).measurement, "", 1) for one, ms in zip(
        (ranked(1, M=m) for m in range(4)), (1.0, 1.0005, 1.001, 1.002), strict=True
    )]  # fmt: skip
    assert summary._ties(entries) == 2
    assert summary._ties([]) == 0


def test_what_the_family_says_of_its_results() -> None:
    best = replace(ranked(0.5, M=32), traits=Traits("tf32x3", False))
    _, *lines = best_lines(replace(result(), best=best))
    assert lines == [
        f"arithmetic: tf32x3 ({ARITHMETICS['tf32x3']})",
        "deterministic: no: sums are added up in an order left to chance",
    ]
    assert best.to_json()["arithmetic"] == "tf32x3"
    assert best.to_json()["deterministic"] is False


def test_json_is_plain() -> None:
    data = json.loads(json.dumps(result().to_json()))
    assert data["best"]["config"] == {"M": 32, "N": 64}
    assert data["best"]["measurement"]["verification"]["checks"][0]["max_abs_error"] == 0.001
    assert data["outcomes"] == {"ok": 7, "wrong_result": 2}
    assert replace(result(), best=None, table=()).to_json()["best"] is None


def test_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "usual_gpu", lambda: "h200")
    backward = get_op("backward")

    def command(problem: Problem, asked: Asked = Asked(), **changes: object) -> str:  # noqa: B008 - frozen
        changed: Any = {"problem": problem, **changes}
        text = next_command(backward, replace(result(), **changed), asked)
        assert text.startswith("autotune export --op backward")
        assert text.endswith(" -o backward.cu")
        return text.removeprefix("autotune export --op backward").removesuffix(" -o backward.cu").strip()

    assert not command(backward.problem())
    assert command(backward.problem(T=1024), Asked(["T"])) == "--T 1024"
    other = backward.problem(NH=8, NH_kv=2, T=64, T_kv=32, causal=False, dtype="bf16")
    assert command(other) == "--NH 8 --NH-kv 2 --T 64 --T-kv 32 --dtype bf16 --no-causal"
    own = Asked((), ["flash_simt", "my own/tiled.cu.j2"], "mod:fn", "here.db")
    assert command(backward.problem(), own) == "--template 'my own/tiled.cu.j2' --reference mod:fn --db here.db"
    assert command(backward.problem(), Asked(templates=["flash_simt", "tiled"])) == "--template tiled"
    assert command(backward.problem(), Asked(full_precision=True)) == "--full-precision"
    assert command(backward.problem(), device="cpu:a100") == "--device a100"
    assert command(backward.problem(), device="h200") == ""
    monkeypatch.setattr(results, "usual_gpu", lambda: "a100")
    assert command(backward.problem(), device="h200") == "--device h200"


def test_a_better_answer_of_the_next_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    family = find_template("forward", "flash_simt")
    forward, asked, mine = get_op("forward"), Asked(templates=["tiled"], db="here.db"), result()
    assert mine.best is not None
    calls: list[object] = []

    def answers(candidate: Candidate) -> None:
        def look_up(op: str, **given: object) -> Best:
            calls.append((op, given["device"], given["db"], given["template"], given["T"]))
            return Best("exact", "estimated", 0.25, PROBLEM, gpu("h200"), candidate, family, found=PROBLEM)

        monkeypatch.setattr(results, "best", look_up)

    answers(mine.best.candidate)
    assert other_answer(forward, mine, asked) is None
    assert calls == [("forward", "h200", "here.db", "tiled", 64)]
    answers(make_candidate("tiled", "hash", {"M": 8}))
    assert other_answer(forward, mine, asked) == (
        "this writes a better one that is known already: tiled M=8, 0.25 ms estimated"
    )
    assert other_answer(forward, replace(mine, best=None, table=()), asked) is None


def progress(**changes: object) -> Progress:
    one = Progress(
        problem=PROBLEM, device="cpu:h200", title="NVIDIA H200", phase="searching", trials=10, new=5, trials_limit=40,
        elapsed=20.0, timeout=150.0, outcomes={Outcome.OK: 9, Outcome.CRASH: 1}, best_ms=0.5,
        best=make_candidate("tiled", "hash", {"M": 32}), load=Load(3, 1, 12.0, 8.0), estimated=True,
    )  # fmt: skip
    return replace(one, **changes)  # type: ignore[arg-type]


def test_time_left_is_the_sooner_of_trials_and_time() -> None:
    assert time_left(progress()) == 120.0  # 30 trials at 4 s each
    assert time_left(progress(timeout=50.0)) == 30.0
    assert time_left(progress(new=0)) == 130.0
    assert time_left(progress(new=0, timeout=None)) is None
    assert time_left(progress(timeout=10.0)) == 0.0


def test_plain_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(live=False) as display:
        display(progress())
        display(progress(elapsed=21.0))  # too soon and nothing better: no line
        display(progress(elapsed=22.0, best_ms=0.4))
        display(progress(elapsed=28.0, best_ms=0.4))
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 4
    assert lines[0] == f"{PROBLEM} on cpu:h200, times estimated for NVIDIA H200"
    assert lines[1] == (
        "0:20  10/40 trials; best 0.5 ms (estimate) tiled; ok 9, crash 1; "
        "3 building, 1 waiting; compile 12 s, device 8 s, about 2:00 left"
    )


def test_builds_that_wait_for_a_compiler_are_not_called_building(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(live=False) as display:
        display(progress(load=Load(building=1, waiting=1, queued=2)))
    assert "; 1 building, 3 waiting; " in capsys.readouterr().err


def test_plain_lines_say_nothing_twice_and_nothing_odd(capsys: pytest.CaptureFixture[str]) -> None:
    begun: dict[str, Any] = {"best_ms": None, "best": None, "outcomes": {}, "trials": 0, "new": 0}
    with ProgressDisplay(live=False) as display:
        display(progress(**begun, elapsed=5.0, trials_limit=1, timeout=None))
        display(progress(trials=1, trials_limit=1))
        display(progress(trials=1, trials_limit=1, phase="done"))  # as before
        display(progress(trials=20, trials_limit=8, phase="done", elapsed=21.0))
    lines = capsys.readouterr().err.splitlines()[1:]
    assert [line.split("; ")[:2] for line in lines] == [
        ["0:05  0/1 trial", "none verified yet"],
        ["0:20  1/1 trial", "best 0.5 ms (estimate) tiled"],
        ["0:21  20 trials", "best 0.5 ms (estimate) tiled"],
    ]
    assert lines[0] == "0:05  0/1 trial; none verified yet; 3 building, 1 waiting; compile 12 s, device 8 s"
    assert lines[2].endswith("; ok 9, crash 1; compile 12 s, device 8 s")


def test_a_live_panel(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(live=True) as display:
        display(progress())
        display(progress(phase="done", trials_limit=None))
    captured = capsys.readouterr()
    assert captured.out == ""
    for text in ("10 trials", "best 0.5 ms (estimate) tiled", "M=32", "ok 9, crash 1", "compile 12 s"):
        assert text in captured.err


@pytest.mark.parametrize(("seconds", "text"), [(5.9, "0:05"), (65, "1:05"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 trials"), (1, "1 trial"), (1234, "1,234 trials")])
def test_number(count: int, text: str) -> None:
    assert number(count, "trial") == text


WRONG = {Outcome.WRONG_RESULT: make_candidate("tiled", "hash", {"GRID_MAP": "x=rows,y=head; rm -rf", "M": 1})}


def test_what_went_wrong_is_looked_into_by_a_command_for_the_shell() -> None:
    lines = list(summary_lines(replace(result(), firsts=WRONG), Asked(templates=("my files/tiled.cu.j2",))))
    [command] = [line.removeprefix("look into it: ") for line in lines if line.startswith("look into it: ")]
    assert shlex.split(command) == [
        "autotune", "check", "--op", "forward", "--T", "64", "--template", "my files/tiled.cu.j2", "--param",
        "GRID_MAP=x=rows,y=head; rm -rf", "--param", "M=1", "--device", "h200",
    ]  # fmt: skip
    second = f"tiled M=1: out: error 3 (on {PROBLEM.replace(T=113, dtype='fp32', causal=False)})"
    there = replace(result(), firsts=WRONG, messages={Outcome.WRONG_RESULT: second})
    words = shlex.split(next(line for line in summary_lines(there) if line.startswith("look into it: ")))
    assert words[words.index("--T") : words.index("--template")] == [
        "--T", "113", "--T-kv", "64", "--dtype", "fp32", "--no-causal",
    ]  # fmt: skip
    fine = replace(result(), firsts=WRONG, messages={Outcome.PRUNED: "tiled M=1: slow"})
    assert not any("look into it" in line for line in summary_lines(fine))


def test_the_command_is_one_that_works(tmp_path: Path) -> None:
    candidate = find_template("forward", "flash_simt").defaults
    firsts = {Outcome.LAUNCH_ERROR: make_candidate("flash_simt", "hash", candidate)}
    there = replace(result(), firsts=firsts, messages={Outcome.LAUNCH_ERROR: "flash_simt: no (on forward B=1 NH=2)"})
    [line] = [line for line in summary_lines(there) if line.startswith("look into it: ")]
    words = shlex.split(line.removeprefix("look into it: autotune "))
    command = typer.main.get_command(build_app([words[0]])).commands[words[0]]  # type: ignore[attr-defined]
    context = command.make_context(words[0], words[1:])
    assert context.params["param"] == [f"{name}={value}" for name, value in candidate.items()]
    assert (context.params["B"], context.params["NH"]) == (["1"], ["2"])
    target = find_target(
        "forward", "flash_simt", dict(map(parsed, context.params["param"])), None, "h200", tmp_path / "a.db", {}
    )
    assert dict(target.candidate.config) == candidate


def parsed(text: str) -> tuple[str, Any]:
    name, value = split_setting(text)
    return name, parse_value(value)


def test_why_there_is_no_winner() -> None:
    none = replace(result(), best=None, table=(), trials=0, resumed=0, outcomes={}, messages={})
    assert "give it more with --timeout" in no_winner(none)
    assert "interrupted before a candidate was finished" in no_winner(replace(none, stopped="interrupted"))
    assert no_winner(replace(none, trials=3)) == "no candidate was right and ran: there is no winner"
    assert not any("no kernel has run" in line for line in summary_lines(none))


def test_trials_that_others_have_made() -> None:
    used = replace(result(), resumed=9, new=0, stopped="trials")
    said = "nothing was left to do: earlier runs made all 9 trials, whatever their sampler and seed; "
    said += "more with --trials 18"
    assert said in list(summary_lines(used))
    assert not any("nothing was left" in line for line in summary_lines(replace(used, resumed=8)))


def test_a_sweep_ends_in_one_table() -> None:
    first = result()
    second = replace(first, problem=PROBLEM.replace(T=128), table=first.table[1:], best=first.table[1])
    none = replace(first, problem=PROBLEM.replace(T=256), table=(), best=None, trials=2)
    rows = [first, second, none]
    assert sweep_columns(rows) == [">T", ">est. ms", ">TFLOP/s", "?>GB/s", ">trials", "family", "~configuration"]
    assert list(sweep_rows(rows)) == [
        ["64", "0.5", "4.00", "200.0", "9", "tiled", "M=32"],
        ["128", "0.8", "2.50", "125.0", "9", "tiled", "M=64"],
        ["256", "", "", "", "2", "", "no candidate was right and ran: there is no winner"],
    ]
    said, shared = sweep_shared(rows)
    assert said.startswith("3 winners of forward B=")
    assert " T=" not in said
    assert said.endswith("; times are ESTIMATES for NVIDIA H200, not measurements")
    assert shared == "all rows: N=64"
