"""The sweeps that look for cliffs: what they cover, what work takes, and which neighbours are a jump."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autotune.answers.best import Best
from autotune.core.errors import AutotuneError, LaunchError
from autotune.core.problem import Problem
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from benchmarks.cliffs import (
    GROUPS,
    HEADS,
    LENGTHS,
    RATIOS,
    Sweep,
    draw,
    estimated,
    ideal_ms,
    jumps,
    look_up_all,
    looked_up,
    main,
    rows_in,
    run,
    sweeps,
)

H200 = gpu("h200")
FORWARD = get_op("forward")


def test_sweeps_cover_what_they_say() -> None:
    found = list(sweeps([64], "fp16"))
    along = {
        sweep.along: {at for sweep_ in found if sweep_.along == sweep.along for at, _ in sweep_.points}
        for sweep in found
    }
    assert along["T"] == set(map(float, LENGTHS))
    assert (min(LENGTHS), max(LENGTHS)) == (1, 20000)
    assert along["B·NH"] == set(map(float, HEADS))
    assert (min(HEADS), max(HEADS)) == (1, 100000)
    assert along["NH/NH_kv"] == set(map(float, GROUPS))
    assert along["T_kv/T"] == set(RATIOS)
    assert {sweep.points[0][1].op for sweep in found} == {"forward", "backward"}
    for sweep in found:
        for at, problem in sweep.points:
            B, NH, NH_kv, T, T_kv = (problem.integer(name) for name in ("B", "NH", "NH_kv", "T", "T_kv"))
            value = {"T": T, "T_kv": T_kv, "B·NH": B * NH, "NH/NH_kv": NH / NH_kv, "T_kv/T": T_kv / T}[sweep.along]
            assert value == pytest.approx(at, rel=0.02)


def test_work_is_the_longer_of_operations_and_bytes() -> None:
    long = FORWARD.problem(B=3, NH=11, T=4096, HS=128, causal=False)  # 33 heads of 16 tiles: four waves of 132
    assert ideal_ms(long, H200) == pytest.approx(8e-3 + FORWARD.flops(long) / (0.5 * H200.tensor_tflops * 1e9))
    step = FORWARD.problem(B=16, NH=32, NH_kv=8, T=1, T_kv=4096, HS=128, causal=False)
    assert ideal_ms(step, H200) == pytest.approx(8e-3 + FORWARD.nbytes(step) / (H200.bandwidth_gbs * 1e6))


def test_work_comes_in_whole_tiles_and_waves() -> None:
    def compute(**fields: Any) -> float:
        return ideal_ms(FORWARD.problem(HS=128, causal=False, **fields), H200) - 8e-3

    whole = compute(B=3, NH=11, T=4096)
    tiles_of_64 = 17 * 132 / (33 * 65) * (65 * 64 / 4096) ** 2  # 33 heads of 65 tiles, in 17 waves
    assert compute(B=3, NH=11, T=4097) / whole == pytest.approx(tiles_of_64)
    assert compute(B=1, NH=34, T=4096) / whole == pytest.approx(17 / 16, rel=0.01)  # tiles of 64: 17 waves for 16
    backward = get_op("backward").problem(B=2, NH=10, T=4096, T_kv=77, causal=False)
    # 40 blocks of keys, four shares of each
    flops = get_op("backward").tiled_flops(backward, {"BLOCK_M": 64, "BLOCK_N": 64})
    assert ideal_ms(backward, H200) == pytest.approx(8e-3 + flops * 2 * 132 / 160 / (0.5 * H200.tensor_tflops * 1e9))


def line(at: float, ms: float, sweep: str = "one") -> dict[str, Any]:
    return {
        "sweep": sweep,
        "along": "T",
        "at": at,
        "ms": ms,
        "ideal_ms": at,
        "answer": "start",
        "candidate": f"at {at}",
    }


def test_a_jump_is_a_neighbour_that_takes_far_longer_for_its_work() -> None:
    rows = [line(4.0, 4.0), line(1.0, 1.0), line(2.0, 2.6), line(8.0, 16.0), line(9.0, 9.0, "two")]
    found = jumps(rows)
    assert [(j.before, j.after, j.factor) for j in found] == [(4.0, 8.0, 2.0)]
    assert str(found[0]).startswith(" 2.00x  one: T 4 -> 8\n")
    assert jumps([*rows, line(2.0, 2.7, "two"), line(4.0, 4.0, "two")])[1].factor == pytest.approx(1 / 1.35)


def sweep(*lengths: int) -> Sweep:
    return Sweep("short", "T", tuple((float(T), FORWARD.problem(B=1, NH=2, T=T)) for T in lengths))


def test_what_was_measured_is_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def timer(found: Best) -> float:
        asked.append(found.problem["T"])
        if found.problem["T"] == 96:
            raise LaunchError("planted")
        return 0.5

    report = tmp_path / "times.jsonl"
    assert run([sweep(64, 65, 96)], H200, timer, report, None) == 1
    assert "LaunchError: planted" in capsys.readouterr().out
    assert run([sweep(64, 65, 96, 128)], H200, timer, report, None) == 0
    assert asked == [64, 65, 96, 128]
    assert [row.get("ms") for row in rows_in(report)] == [0.5, 0.5, None, 0.5]
    assert run([sweep(256)], H200, timer, report, -1.0) == 0
    assert "the time is up before short, T 256" in capsys.readouterr().out


def test_what_a_sweep_needs_is_prepared_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of what is left to do, and not where the time is up."""
    report, prepared = tmp_path / "times.jsonl", list[list[Any]]()

    def prepare(some: Sequence[Problem]) -> None:
        prepared.append([problem["T"] for problem in some])

    assert run([sweep(64, 65)], H200, lambda _: 0.5, report, None, prepare) == 0
    both = [sweep(64, 65, 96), Sweep("other", "T", sweep(32).points)]
    assert run(both, H200, lambda _: 0.5, report, None, prepare) == 0
    assert prepared == [[64, 65], [96], [32]]
    assert run([sweep(192)], H200, lambda _: 0.5, report, -1.0, prepare) == 0
    assert prepared == [[64, 65], [96], [32]]
    assert "the time is up before short, T 192" in capsys.readouterr().out


def test_estimates_are_labelled_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.cliffs.sweeps", lambda *_: iter([sweep(64, 128)]))
    assert main(["--estimate", "h200", "--out", str(tmp_path), "--plot", str(tmp_path / "cliffs.svg")]) == 0
    assert "jumps among 2 problems, estimated, not measured, for NVIDIA H200" in capsys.readouterr().out
    assert (tmp_path / "cliffs.svg").stat().st_size > 1000
    assert draw(rows_in(tmp_path / "estimates.jsonl"), "x").axes[0].get_xlabel() == "T"
    assert all(row["ms"] > 0 for row in rows_in(tmp_path / "estimates.jsonl"))


def test_an_estimate_is_the_time_that_is_kept_where_there_is_one(tmp_path: Path) -> None:
    from autotune.answers.lookup import best

    exact = best("backward", T=1024, device="h200", db=tmp_path / "none.db")
    assert exact.answer == "exact"
    assert estimated(exact) == exact.ms
    other = best("backward", T=1030, device="h200", db=tmp_path / "none.db")
    assert estimated(other) == other.expected_ms


def test_answers_of_other_processes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come without their template, which holds functions; a problem that nobody answers is left to be asked."""
    monkeypatch.setattr("benchmarks.cliffs._answers", {})
    asked, unknown = FORWARD.problem(T=777), FORWARD.problem(HS=600)
    with ThreadPoolExecutor(1) as pool:
        look_up_all([asked, unknown], H200, pool)
        there = looked_up(asked, H200)
        monkeypatch.setattr("benchmarks.cliffs._answers", {})
        here = looked_up(asked, H200)
    assert there == here
    assert there.source == here.source
    with pytest.raises(AutotuneError):
        looked_up(unknown, H200)
