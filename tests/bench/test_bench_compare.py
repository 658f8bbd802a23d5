"""A comparison: whoever raises, is wrong, absent or does not compute the problem disturbs nobody else."""

import math

import pytest

from autotune.bench.compare import compare, compare_all, reason_of
from autotune.bench.measured import Became, Error, Row, complaint, fastest
from autotune.bench.rounds import Timed, interleaved
from autotune.core.measurement import Timing
from tests.bench.bench_doubles import BACKWARD, FORWARD, Fake, FakeLab


def entry(row: Row, name: str) -> tuple[Became, str]:
    found = next(entry for entry in row.entries if entry.name == name)
    return found.became, found.reason


def test_everybody_ends_as_it_is() -> None:
    lab = FakeLab()
    row = compare(
        FORWARD,
        [
            Fake(lab, "autotune", 1.0), Fake(lab, "good", 2.0), Fake(lab, "wrong", 0.5, off=0.01),
            Fake(lab, "nan", 0.5, off=math.nan), Fake(lab, "absent", 1.0, absent="it is not installed"),
            Fake(lab, "other", 1.0, takes="bf16"), Fake(lab, "raising", 1.0, raises=TypeError("bad\nstack")),
            Fake(lab, "silent", 1.0, raises=AssertionError()), Fake(lab, "late", 1.0, raises_in_round=1),
        ],
        lab, rounds=3,
    )  # fmt: skip
    assert [entry.name for entry in row.entries] == [
        "autotune", "good", "wrong", "nan", "absent", "other", "raising", "silent", "late",
    ]  # fmt: skip
    assert entry(row, "autotune") == entry(row, "good") == (Became.OK, "")
    assert entry(row, "wrong") == (
        Became.WRONG, "out is off by 0.01 (||got - exact|| / ||exact||); 0.005 is allowed",
    )  # fmt: skip
    assert entry(row, "nan") == (Became.WRONG, "out has elements that are NaN or infinite")
    assert entry(row, "absent") == (Became.ABSENT, "it is not installed")
    assert entry(row, "other") == (Became.UNSUPPORTED, "it takes bf16")
    assert entry(row, "raising") == (Became.FAILED, "bad")
    assert entry(row, "silent") == (Became.FAILED, "AssertionError")
    assert entry(row, "late") == (Became.FAILED, "late broke")
    times = {e.name: e.kernel.median for e in row.entries if e.kernel is not None}
    assert times == {"autotune": 1.0, "good": 2.0, "wrong": 0.5, "nan": 0.5}
    right = fastest(row.entries)
    assert right is not None
    assert right.name == "autotune"  # what is wrong is never the fastest
    assert {e.name: row.speed(e) for e in row.entries if row.speed(e)} == {"autotune": 1.0, "good": 2.0}
    assert lab.emptied_times == 1


def test_where_ours_is_wrong_nothing_is_compared_with_it() -> None:
    lab = FakeLab()
    row = compare(FORWARD, [Fake(lab, "autotune", 1.0, off=1.0), Fake(lab, "good", 2.0)], lab, rounds=1)
    assert [row.speed(e) for e in row.entries] == [None, None]
    right = fastest(row.entries)
    assert right is not None
    assert right.name == "good"


def test_rounds_are_interleaved_and_the_median_round_counts() -> None:
    lab = FakeLab()
    contenders = [Fake(lab, "autotune", 1.0, 3.0, 2.0, us=7.0), Fake(lab, "peer", 4.0, us=9.0)]
    row = compare(FORWARD, contenders, lab, rounds=3)
    assert lab.log == ["autotune", "peer"] * 3
    kernel, call = row.entries[0].kernel, row.entries[0].call
    assert kernel is not None
    assert call is not None
    assert (kernel.median, kernel.low) == (2.0, 0.99)
    assert kernel.high == pytest.approx(3.06)
    assert kernel.percent == pytest.approx(50 * (3.06 - 0.99) / 2.0)
    assert (call.median, call.low, call.high) == (7.0, 7.0, 7.0)
    assert row.tflops(row.entries[0]) == pytest.approx(4 * 2 * 512 * 512 * 64 / 2 / 2.0 / 1e9)
    assert lab.counts == [20] * 6


def test_few_calls_are_queued_where_they_are_long() -> None:
    lab = FakeLab()
    compare(FORWARD, [Fake(lab, "autotune", 12.0), Fake(lab, "peer", 90.0)], lab, rounds=1)
    assert lab.counts == [8, 3]


def test_who_is_hopeless_is_timed_once_but_ours_always() -> None:
    lab = FakeLab()
    row = compare(FORWARD, [Fake(lab, "autotune", 20.0), Fake(lab, "fast", 1.0), Fake(lab, "slow", 11.0)], lab, 3)
    assert [len(entry.rounds) for entry in row.entries] == [3, 3, 1]


def test_all_outputs_of_a_backward_pass_are_judged() -> None:
    lab = FakeLab()
    row = compare(BACKWARD, [Fake(lab, "autotune", 1.0), Fake(lab, "peer", 1.0, off=0.004)], lab, rounds=1)
    worst = row.entries[1].worst
    assert worst is not None
    assert worst[0] == "dq"
    assert [round(error.largest, 9) for error in row.entries[1].errors.values()] == [0.004] * 3
    assert row.entries[1].became is Became.OK


@pytest.mark.parametrize(
    ("relative", "dtype", "right"),
    [(5e-3, "fp16", True), (5.1e-3, "fp16", False), (4e-2, "bf16", True), (1e-4, "fp32", True), (2e-4, "fp32", False)],
)
def test_what_is_wrong_depends_on_the_dtype(relative: float, dtype: str, right: bool) -> None:
    assert (complaint({"out": Error(1.0, relative)}, dtype) is None) is right


def test_nan_and_nothing_are_wrong() -> None:
    for bad in (Error(math.nan, 0.0), Error(0.0, math.nan), Error(math.inf, 0.0)):
        assert complaint({"dq": Error(0.0, 0.0), "dk": bad}, "bf16") == "dk has elements that are NaN or infinite"
    assert complaint({}, "bf16") == "it gave no output"


def test_reasons_are_one_short_line() -> None:
    assert reason_of(ValueError("  one\ntwo")) == "one"
    assert reason_of(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(reason_of(ValueError("x" * 1000))) == 160


def test_a_problem_without_memory_costs_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    lab = FakeLab(broken=frozenset({1024}))
    problems = [FORWARD.replace(T=T, T_kv=T) for T in (512, 1024, 2048)]
    contenders = [Fake(lab, "autotune", 1.0), Fake(lab, "peer", 1.0), Fake(lab, "gone", 1.0, absent="not here")]
    told: list[Row] = []
    rows = compare_all(problems, contenders, lab, 1, told.append)
    assert rows == told
    assert [row.problem["T"] for row in rows] == [512, 1024, 2048]
    assert [entry.became.value for entry in rows[1].entries] == ["failed", "failed", "absent"]
    assert rows[1].entries[0].reason == "not begun: out of memory: 80 GB"
    assert [entry.became.value for entry in rows[2].entries] == ["ok", "ok", "absent"]


def test_an_interruption_keeps_what_there_is() -> None:
    lab = FakeLab()

    class Interrupted(Fake):
        def why_not(self, problem: object) -> str | None:
            assert hasattr(problem, "integer")
            if problem.integer("T") == 1024:
                raise KeyboardInterrupt
            return None

    problems = [FORWARD.replace(T=T, T_kv=T) for T in (512, 1024, 2048)]
    rows = compare_all(problems, [Interrupted(lab, "autotune", 1.0)], lab, 1, lambda row: None)
    assert [row.problem["T"] for row in rows] == [512]
    with pytest.raises(KeyboardInterrupt):
        compare_all(problems[1:], [Interrupted(lab, "autotune", 1.0)], lab, 1, lambda row: None)


# --- rounds


def once(ms: float) -> Timed:
    return Timed(Timing("measured", ms, ms, ms, ms, 3, "made up"))


def test_who_is_put_out_does_not_come_again() -> None:
    asked: list[str] = []

    def measure(name: str) -> Timed | None:
        asked.append(name)
        return None if name == "b" and asked.count("b") == 2 else once(1.0)

    found = interleaved(["a", "b", "c"], measure, 3)
    assert asked == ["a", "b", "c", "a", "b", "c", "a", "c"]
    assert {name: len(times) for name, times in found.items()} == {"a": 3, "c": 3}


def test_twice_the_fastest_is_hopeless_unless_always_wanted() -> None:
    ms = {"ours": 5.0, "fast": 1.0, "twice": 2.0, "slow": 2.1, "kept": 9.0}
    found = interleaved(list(ms), lambda name: once(ms[name]), 3, 2.0, {"ours", "kept"})
    assert {name: len(times) for name, times in found.items()} == {
        "ours": 3, "fast": 3, "twice": 3, "slow": 1, "kept": 3,
    }  # fmt: skip
