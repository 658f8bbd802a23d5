"""What a search has built for examinations while it still goes on."""

from pathlib import Path

import pytest

from autotune.core.candidate import Candidate
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.evaluator import Load
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.search_options import Options
from autotune.tuning.session import Session
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, family, store, took


def test_builds_for_an_examination_begin_in_the_second_half(tmp_path: Path) -> None:
    told: list[tuple[int, list[Candidate]]] = []
    times = iter([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0])
    evaluator = FunctionEvaluator(lambda candidate: took(next(times)))  # each is faster than those before
    with store(tmp_path) as db:
        session = Session(
            Families([family(A=range(8))]), Records(db, IDENTITY, PROBLEM), evaluator, Clock(Budget(8)),
            Options(sampler="random", final=False), estimated=False,
            expect=lambda candidates: told.append((session.ledger.trials, [*candidates])),
        )  # fmt: skip
        session.run()
    leaders = [entry.candidate for entry in session.ledger.trial_entries()]
    assert told == [(trials, [leaders[trials - 1]]) for trials in range(4, 9)]


@pytest.mark.parametrize(("building", "ahead"), [(4, False), (2, True)])
def test_all_finalists_are_prepared_once_nothing_more_is_asked(tmp_path: Path, building: int, ahead: bool) -> None:
    """While the last builds run, if half of the cores have none."""
    told: list[list[Candidate]] = []
    times = iter([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0])

    class Building(FunctionEvaluator):
        def load(self) -> Load:
            return Load(building=1, queued=building - 1)

    evaluator = Building(lambda candidate: took(next(times)), capacity=3, again=lambda candidate: took(1.0))
    with store(tmp_path) as db:
        session = Session(
            Families([family(A=range(8))]), Records(db, IDENTITY, PROBLEM), evaluator, Clock(Budget(8)),
            Options(sampler="random", jobs=4), estimated=False, expect=lambda candidates: told.append([*candidates]),
        )  # fmt: skip
        session.run()
    best_first = [entry.candidate for entry in reversed(session.ledger.trial_entries())]
    assert told[0] == [best_first[4]]  # the leader after four of eight
    finalists = [candidates for candidates in told if len(candidates) > 1]
    assert bool(finalists) is ahead
    if ahead:
        assert [len(candidates) for candidates in finalists] == [5] * len(finalists)
        assert finalists[-1] == best_first[:5]
