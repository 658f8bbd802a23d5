"""A search with a limit of time ends soon after it, whatever its candidates do, and says what there was no time for."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from autotune.core.candidate import Candidate
from autotune.core.measurement import Energy, Measurement
from autotune.core.outcome import Outcome
from autotune.report.results import summary_lines
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.evaluator import Finished
from autotune.tuning.finalists import FINAL_S, finalists_of
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.ledger import Entry, Ledger
from autotune.tuning.loop import Engine
from autotune.tuning.metered_final import MeteredFinal
from autotune.tuning.objective import find_objective
from autotune.tuning.samplers import make_strategy
from autotune.tuning.search_options import Options
from autotune.tuning.session import Session
from tests.report.test_search_report import result
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, failed, family, run, store, took

TICK_S = 0.5


@dataclass
class Hands(Clock):
    """A clock that is set by hand."""

    now: float = 0.0

    @property
    def elapsed(self) -> float:
        return self.now


@dataclass
class Hanging(FunctionEvaluator):
    """Candidates that never end: polling takes its time and yields nothing."""

    clock: Hands = field(default_factory=lambda: Hands(Budget()))

    def poll(self, timeout_s: float) -> Sequence[Finished]:
        self.clock.now += TICK_S
        return []


def engine_of(evaluator: FunctionEvaluator, records: Records, clock: Clock, count: int) -> Engine:
    joint = Families([family(X=range(count))])
    return Engine(
        joint, Ledger(), records, evaluator, clock, np.random.default_rng(0),
        lambda seen: make_strategy("random", joint, seen, 0), first=joint.starts(),
    )  # fmt: skip


@pytest.mark.parametrize("capacity", [1, 3])
@pytest.mark.parametrize("timeout_s", [1.0, 8.0, 20.0, 50.0, 600.0])
@pytest.mark.parametrize("count", [1, 3, 40])  # the whole space under way, and more than is asked for
def test_what_never_ends_is_dropped_soon_after_the_time(
    tmp_path: Path, timeout_s: float, count: int, capacity: int
) -> None:
    clock = Hands(Budget(None, timeout_s))
    with store(tmp_path) as db:
        search = engine_of(Hanging(took_one, capacity, clock=clock), Records(db, IDENTITY, PROBLEM), clock, count)
        run(search)
    assert timeout_s < clock.now <= timeout_s + min(5.0, timeout_s / 10) + TICK_S
    assert search.stopped == "timeout"
    assert search.dropped == min(count, capacity)


def took_one(candidate: Candidate) -> Measurement:
    return took(1.0)


@pytest.mark.parametrize(
    ("timeout_s", "again"),
    [(39.0, 0), (40.0, 0), (50.0, 0), (59.9, 0), (60.0, 1), (61.0, 1), (79.0, 1), (80.0, 2), (500.0, 2), (None, 2)],
)
def test_a_second_try_has_to_fit_into_what_is_left(tmp_path: Path, timeout_s: float | None, again: int) -> None:
    """Two candidates that run out of their 20 s: as much may be needed for each once more."""
    clock = Hands(Budget(None, timeout_s))

    def measure(candidate: Candidate) -> Measurement:
        clock.now += 20.0
        return replace(failed(Outcome.TIMEOUT), device_seconds=20.0)

    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(measure)
        search = engine_of(evaluator, Records(db, IDENTITY, PROBLEM), clock, 2)
        run(search)
    assert len(evaluator.asked) == 2 + again
    assert clock.now <= max(40.0, timeout_s or 80.0)
    assert search.ledger.outcomes == {Outcome.TIMEOUT: 2}
    assert search.dropped == 0


def entry(ms: float, number: int) -> Entry:
    return Entry(Candidate("fam", "hash", (("X", number),)), took(ms), "", number)


@pytest.mark.parametrize(
    ("ms", "most_s", "playing"),
    [
        (0.1, None, 6), (9000.0, None, 6), (0.1, 10.0, 6), (0.1, 9.0, 6), (0.1, 8.9, 5), (0.1, 3.0, 2), (0.1, 2.9, 0),
        (500.0, FINAL_S, 0), (500.0, 27.0, 2), (9000.0, 54.0, 2), (9000.0, 53.9, 0), (9000.0, 500.0, 6),
    ],
)  # fmt: skip
def test_a_final_fits_into_its_time(ms: float, most_s: float | None, playing: int) -> None:
    ranked = [entry(ms, number) for number in range(9)]
    standing = ranked[7].candidate
    chosen, left_out = finalists_of(ranked, standing, most_s)
    assert (len(chosen), left_out) == (playing, 6 - playing)
    assert chosen == sorted(chosen, key=lambda one: one.record_id)  # the fastest first
    if chosen:
        assert chosen[0] is ranked[0]
        assert standing in {one.candidate for one in chosen}
    alone, none = finalists_of(ranked[:1], None, most_s)
    assert len(alone) + none == 1


@pytest.mark.parametrize(("elapsed", "retimed"), [(10.0, 3), (63.0, 3), (65.0, 2), (77.0, 0), (200.0, 0)])
def test_where_a_final_would_take_too_long_trials_name_the_winner(tmp_path: Path, elapsed: float, retimed: int) -> None:
    """Of 100 s; each finalist takes three runs of 4 s."""
    clock, again = Hands(Budget(3, 100.0, least=3)), []

    def measure(candidate: Candidate) -> Measurement:
        clock.now = elapsed
        return took(4000.0 + int(candidate.config["X"]))

    def once_more(candidate: Candidate) -> Measurement:
        again.append(candidate)
        return measure(candidate)

    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(measure, 1, once_more)
        records = Records(db, IDENTITY, PROBLEM)
        families = Families([family(X=range(3))])
        findings = Session(families, records, evaluator, clock, Options(3), estimated=False).run()
        winner = db.winner(PROBLEM, "h200")
    assert (len(again), findings.unplayed) == (retimed, 3 - retimed)
    assert [entry.candidate.config["X"] for entry in findings.ranked] == [0, 1, 2]
    assert winner is not None
    assert winner.record.candidate.config["X"] == 0


@pytest.mark.parametrize("late", [False, True])
def test_energies_of_earlier_searches_are_not_measured_after_the_time(tmp_path: Path, late: bool) -> None:
    def metered(candidate: Candidate) -> Measurement:
        return replace(took(1.0), energy=Energy(100.0, 20.0, 5.0, 1, 0.5, "counter"))

    ledger, evaluator = Ledger(), FunctionEvaluator(metered)
    with store(tmp_path) as db:
        records = Records(db, IDENTITY, PROBLEM)
        for number in range(9):
            candidate = Candidate("fam", "hash", (("X", number),))
            ledger.add(Entry(candidate, took(1.0), "", records.write(candidate, "", took(1.0))))
        last = MeteredFinal(find_objective("energy"), ledger, records, evaluator, late=lambda: late)
        ranked = last.held(ledger.ranked(), lambda candidate: "", spills=True)
    first_looks = [candidate for candidate, rounds in evaluator.metered if rounds == 1]
    assert len(first_looks) == (1 if late else 9)
    assert ranked[0].figures is not None


def test_the_summary_says_what_there_was_no_time_for() -> None:
    said = "\n".join(summary_lines(result()))
    assert "the time is up;" in said
    assert "not timed once more" not in said
    short = replace(result(), dropped=2, unplayed=3)
    said = "\n".join(summary_lines(short))
    assert "the time is up, 2 candidates under way dropped; " in said
    assert "3 finalists not timed once more" in said
    assert (short.to_json()["dropped"], short.to_json()["unplayed"]) == (2, 3)
