"""What a search minimises: which energies are worth measuring, what the studies are told, which candidate is best."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.core.candidate import Candidate
from autotune.core.errors import UsageError
from autotune.core.measurement import Energy, Measurement, OutputCheck, Verification
from autotune.core.outcome import Outcome
from autotune.store.choosing import best_by
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.guide import Guide
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.ledger import Entry, Ledger, figures_of
from autotune.tuning.loop import Engine
from autotune.tuning.metered_final import MeteredFinal
from autotune.tuning.objective import OBJECTIVES, TIME, Demand, Metered, Objective, Scale, find_objective, front
from autotune.tuning.replayed import Unrecorded
from autotune.tuning.samplers import make_strategy
from autotune.tuning.strategy import Proposal
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, engine, failed, family, run, store, took

ENERGY, EDP, BOTH = (OBJECTIVES[name] for name in ("energy", "edp", "time,energy"))


def drew(measurement: Measurement, watts: float) -> Measurement:
    """With the energy of so many watts."""
    assert measurement.ms is not None
    mj = watts * measurement.ms
    return replace(measurement, energy=Energy(mj, watts, measurement.ms, 10, 0.5, "double", 80.0))


def erring(measurement: Measurement, part: float) -> Measurement:
    return replace(measurement, verification=Verification("", (OutputCheck("out", part * 2e-3, 2e-3, 0),), 1, 1))


def test_objectives_by_name() -> None:
    assert [find_objective(text).name for text in ("time", "EDP", "energy, time", "time,energy")] == [
        "time", "edp", "time,energy", "time,energy",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"'joules' is none; choose from time \| energy \| edp \| time,energy"):
        find_objective("joules")
    assert [objective.metered for objective in OBJECTIVES.values()] == [False, True, True, True]
    assert [objective.several for objective in OBJECTIVES.values()] == [False, False, False, True]


def test_costs() -> None:
    assert [objective.cost((2.0, 600.0)) for objective in OBJECTIVES.values()] == [2.0, 600.0, 1200.0, 2.0]


def test_only_what_may_win_is_worth_a_measurement() -> None:
    """Nobody draws less than three quarters of the least power so far: 300 W of 400."""
    known = [(1.0, 500.0), (1.5, 600.0)]
    assert ENERGY.worth(1.66, known)  # 498 mJ
    assert not ENERGY.worth(1.67, known)  # 501 mJ
    assert EDP.worth(1.29, known)  # 499
    assert not EDP.worth(1.30, known)  # 507
    assert BOTH.worth(0.99, known)
    assert BOTH.worth(1.66, known)
    assert not BOTH.worth(1.67, known)  # slower and dearer than the first
    assert ENERGY.worth(9.0, [])
    metered = Metered(TIME)
    assert not metered.worth(0.1)
    metered = Metered(ENERGY)
    metered.note(1.0, Energy(500.0, 500.0, 1.0, 1, 1.0, "m"))
    assert (metered.worth(1.3), metered.worth(1.4)) == (True, False)


def test_the_front() -> None:
    figures = [(3.0, 1.0), (1.0, 5.0), (2.0, 5.0), (2.0, 4.0), (2.5, 4.0), (1.0, 6.0), (4.0, 1.0)]
    assert front(figures, lambda item: item) == [(1.0, 5.0), (2.0, 4.0), (3.0, 1.0)]
    assert front([], lambda item: item) == []


def test_studies_are_told_log_time_and_log_energy() -> None:
    scale = Scale()
    told = [
        scale.value(math.log(2.0), drew(took(2.0), watts), weight)
        for watts, weight in ((400.0, 0.0), (400.0, 1.0), (800.0, 1.0), (800.0, 0.5))
    ]
    assert told == pytest.approx([math.log(2.0), math.log(2.0), math.log(4.0), math.log(2.0) + math.log(2.0) / 2])
    assert scale.value(math.log(2.0), took(2.0), 1.0) == math.log(2.0)  # taken to draw what the first one drew
    assert scale.value(None, drew(took(2.0), 400.0), 1.0) is None


def _noted(told: list[tuple[int, str, float | None]], place: int, proposal: Proposal, value: float | None) -> None:
    told.append((place, proposal.candidate.key, value))


def test_all_studies_know_all_trials() -> None:
    space = Families([family(A=[1, 2, 3], B=[1, 2, 3])])
    studies = [make_strategy("random", space, lambda candidate: False, seed) for seed in range(3)]
    told: list[tuple[int, str, float | None]] = []
    for place, study in enumerate(studies):
        study.tell = partial(_noted, told, place)  # type: ignore[method-assign]
    guide = Guide(BOTH, studies)
    first, second = guide.ask(), guide.ask()
    assert first is not None
    assert second is not None
    guide.tell(first, Entry(first.candidate, drew(took(1.0), 100.0), "", 1))
    guide.tell(second, None)
    assert told[:3] == [(place, first.candidate.key, 0.0) for place in range(3)]
    assert told[3:] == [(place, second.candidate.key, None) for place in range(3)]


# --- a space in which a large A is slow and draws little: the least energy is at A=5, the least time at A=1

SPACE = {"A": list(range(1, 10)), "B": list(range(10))}


def figures(candidate: Candidate) -> Measurement:
    a, b = int(candidate.config["A"]), int(candidate.config["B"])
    ms = 1.0 + 0.1 * (a - 1) + 0.02 * b
    return drew(took(ms), 700.0 - 60.0 * min(a, 5) + 10 * abs(a - 3))


def searched(demand: Demand, evaluator: FunctionEvaluator) -> Engine:
    joint = Families([family(parameters=SPACE)])
    found = Engine(
        joint, Ledger(), Unrecorded(), evaluator, Clock(Budget(40)), np.random.default_rng(0),
        lambda seen: make_strategy("parzen", joint, seen, 0), startup=5, demand=demand,
    )  # fmt: skip
    run(found)
    return found


def places(entries: list[Entry]) -> list[tuple[object, ...]]:
    return [tuple(entry.candidate.config.values()) for entry in entries]


def test_a_search_by_energy_is_guided_by_it() -> None:
    evaluator = FunctionEvaluator(figures)
    ledger = searched(Demand(ENERGY), evaluator).ledger
    assert places(sorted(ledger.ranked(), key=lambda entry: figures_of(entry)[1]))[0] == (5, 0)
    assert evaluator.figures == [figures_of(entry) for entry in ledger.trial_entries()]


def test_a_search_by_both_finds_the_front() -> None:
    found = front(searched(Demand(BOTH), FunctionEvaluator(figures)).ledger.ranked(), figures_of)
    assert {place[0] for place in places(found)} <= {1, 2, 3, 4, 5}
    assert len(found) >= 4  # of five
    assert places(found)[0] == (1, 0)
    assert places(found)[-1] == (5, 0)


def test_a_larger_error_than_is_asked_is_not_feasible() -> None:
    """The database keeps what was measured; the search counts it as a trial, and takes another one."""

    def measure(candidate: Candidate) -> Measurement:
        return erring(figures(candidate), 1.0 if candidate.config["A"] == 1 else 0.25)

    evaluator = FunctionEvaluator(measure)
    ledger = searched(Demand(TIME, max_error=0.5), evaluator).ledger
    assert places(ledger.ranked())[0] == (2, 0)
    assert ledger.trials == 40
    assert ledger.outcomes[Outcome.INFEASIBLE] == 40 - ledger.outcomes[Outcome.OK] > 0
    assert "its error is 1 of the bound, more than --max-error 0.5" in ledger.first_messages()[Outcome.INFEASIBLE]
    assert evaluator.best_ms == 1.1  # slow ones are not given up beside what is not feasible


def test_an_error_that_is_no_number_is_too_large() -> None:
    demand = Demand(max_error=0.5)
    assert demand.judged(erring(took(1.0), math.nan)).outcome is Outcome.INFEASIBLE
    assert demand.judged(erring(took(1.0), 0.5)) == erring(took(1.0), 0.5)
    assert demand.judged(replace(took(1.0), verification=None)).outcome is Outcome.OK
    assert Demand().judged(erring(took(1.0), 9.0)).outcome is Outcome.OK


# --- the last part


@dataclass
class Ended:
    """A search whose trials are recorded, with what it is asked at its end."""

    records: Records
    ledger: Ledger
    evaluator: FunctionEvaluator

    def final(self, objective: Objective, wrong: Collection[object] = (), **more: Any) -> list[Entry]:
        last = MeteredFinal(objective, self.ledger, self.records, self.evaluator, **more)
        return last.held(self.ledger.ranked(), lambda c: "off" if c.config["A"] in wrong else "", spills=True)


def ended(folder: Path, measured: Callable[[Candidate], bool], again: Callable[[Candidate], Measurement]) -> Ended:
    """Nine candidates, of which some were measured; `again`: the finals' figures."""
    records = Records(store(folder), IDENTITY, PROBLEM)

    def measure(candidate: Candidate) -> Measurement:
        found = figures(candidate)
        return found if measured(candidate) else replace(found, energy=None)

    evaluator = FunctionEvaluator(measure, again=again)
    search = engine([family(A=list(range(1, 10)), B=[0])], evaluator, records, sampler="grid")
    return Ended(records, run(search), evaluator)


def test_the_front_is_held_once_more(tmp_path: Path) -> None:
    """What the trials left is measured first, where it may win; both ends of the front are examined."""

    def slower(candidate: Candidate) -> Measurement:
        found = figures(candidate)
        assert found.ms is not None
        return drew(took(found.ms * 1.01), 400.0 if candidate.config["A"] == 2 else found.mj / found.ms)  # type: ignore[operator]

    search = ended(tmp_path, lambda candidate: candidate.config["A"] != 2, slower)
    final = search.final(BOTH, wrong=[5])
    late, *rest = search.evaluator.metered
    assert (late[0].config["A"], late[1]) == (2, 1)
    assert [(candidate.config["A"], rounds) for candidate, rounds in rest] == [(1, 3), (2, 3)]
    assert [entry.candidate.config["A"] for entry in final[:2]] == [1, 2]
    assert final[0].ms == pytest.approx(1.01)
    assert figures_of(final[1])[1] == pytest.approx(400.0 * 1.1 * 1.01)
    winner = search.records.standing("measured")
    assert winner is not None
    assert winner.id == final[0].record_id
    trial = search.records.store.measurement(search.ledger.get(late[0]).record_id)  # type: ignore[union-attr]
    assert trial is not None
    assert trial.measurement.mj == pytest.approx(444.4)  # the record of the trial has it from now on


def test_where_nothing_is_right_there_is_no_winner(tmp_path: Path) -> None:
    search = ended(tmp_path, lambda candidate: True, figures)
    front_of_all = search.final(BOTH, wrong=range(1, 10))
    assert [entry.candidate.config["A"] for entry in front_of_all] == [6, 7, 8, 9]  # those that were no finalists


def test_the_one_with_the_least_energy_must_be_right_elsewhere(tmp_path: Path) -> None:
    search = ended(tmp_path, lambda candidate: True, figures)
    final = search.final(ENERGY, wrong=[5])
    assert [entry.candidate.config["A"] for entry in final[:4]] == [4, 3, 6, 2]
    assert Outcome.WRONG_RESULT in search.ledger.outcomes
    standing = search.records.standing("measured")
    assert standing is not None
    assert (standing.candidate.config["A"], standing.stage) == (1, "trial")  # in time nothing was compared


def test_who_is_wrong_when_measured_once_more_is_recorded_as_wrong(tmp_path: Path) -> None:
    def again(candidate: Candidate) -> Measurement:
        return failed(Outcome.WRONG_RESULT, "y is off") if candidate.config["A"] == 5 else figures(candidate)

    search = ended(tmp_path, lambda candidate: True, again)
    assert [entry.candidate.config["A"] for entry in search.final(ENERGY)[:4]] == [4, 3, 6, 2]
    (wrong,) = (r for r in search.records.store.measurements(PROBLEM) if r.candidate.config["A"] == 5)
    assert (wrong.measurement.outcome, wrong.measurement.message) == (Outcome.WRONG_RESULT, "y is off")
    assert "y is off" in search.ledger.first_messages()[Outcome.WRONG_RESULT]


def test_an_end_with_nothing_new_measures_nothing(tmp_path: Path) -> None:
    search = ended(tmp_path, lambda candidate: True, figures)
    first = search.final(ENERGY)
    asked = len(search.evaluator.metered)
    assert [entry.record_id for entry in search.final(ENERGY, new=False)[:5]] == [e.record_id for e in first[:5]]
    assert len(search.evaluator.metered) == asked == 5
    hurried = search.final(ENERGY, hurry=True)
    assert hurried[0].candidate == first[0].candidate
    assert len(search.evaluator.metered) == asked


def test_records_by_energy(tmp_path: Path) -> None:
    """Of finalists the newest figures count, and nobody else's once there are any."""
    search = ended(tmp_path, lambda candidate: candidate.config["A"] != 1, lambda c: drew(figures(c), 500.0))
    database = search.records.store
    assert best_by(database, PROBLEM, IDENTITY.name, ENERGY.cost).candidate.config["A"] == 5  # type: ignore[union-attr]
    search.final(ENERGY)
    found = best_by(database, PROBLEM, IDENTITY.name, ENERGY.cost)
    assert found is not None
    assert (found.stage, found.candidate.config["A"], found.measurement.mj) == ("final", 1, 500.0)
    assert best_by(database, PROBLEM, IDENTITY.name, ENERGY.cost, {"fam": "another"}) is None
