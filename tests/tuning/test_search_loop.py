"""The search loop with an evaluator that is a Python function, and a real database."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.candidate import Candidate
from autotune.core.measurement import KernelResources, Measurement, Timing
from autotune.core.model_version import DRIVER, UNCOUNTED_DRIVER
from autotune.core.outcome import DOUBTFUL, Outcome
from autotune.core.values import Value
from autotune.estimate.fallback import METHOD as FALLBACK
from autotune.estimate.model import METHOD
from autotune.gpus.identity import DeviceIdentity
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.ledger import Entry, costs
from autotune.tuning.loop import SECOND_TRIES
from autotune.tuning.samplers import SAMPLERS
from autotune.tuning.search_options import Options
from autotune.tuning.session import Session
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, engine, failed, family, run, store, took

LEARNING = ("tpe", "cmaes")
EVERYWHERE = tuple(name for name in SAMPLERS if name != "gp")


def bowl(candidate: Candidate) -> Measurement:
    """Fastest at X=5, Y=2 (1 ms)."""
    x, y = candidate.config["X"], candidate.config["Y"]
    assert isinstance(x, int)
    assert isinstance(y, int)
    return took(1.0 + (x - 5) ** 2 + (y - 2) ** 2)


@pytest.mark.parametrize("sampler", EVERYWHERE)
def test_every_sampler_ends_when_the_space_is_exhausted_and_finds_the_best(tmp_path: Path, sampler: str) -> None:
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(bowl, capacity=3)
        search = engine([family(X=range(8), Y=range(4))], evaluator, Records(db, IDENTITY, PROBLEM), sampler=sampler)
        ledger = run(search)
    assert search.stopped == "exhausted"
    assert ledger.trials == 32
    assert len(set(evaluator.asked)) == len(evaluator.asked) == 32
    assert ledger.best is not None
    assert ledger.best.candidate.config == {"X": 5, "Y": 2}


@pytest.mark.parametrize("sampler", EVERYWHERE)
@pytest.mark.parametrize("parameters", [{"A": [0]}, {"A": [False, True]}, {"A": ["x", "y"], "B": [1, 2]}, {}])
def test_tiny_spaces_end(tmp_path: Path, sampler: str, parameters: dict[str, list[Value]]) -> None:
    size = math.prod(len(values) for values in parameters.values())
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(lambda candidate: took(1.0))
        space = family(parameters=parameters)
        search = engine([space], evaluator, Records(db, IDENTITY, PROBLEM), sampler=sampler, trials=50)
        assert run(search).trials == size
    assert search.stopped == "exhausted"


@pytest.mark.parametrize("capacity", [1, 8])
@pytest.mark.parametrize("trials", [1, 2, 7])
def test_a_budget_of_trials_is_kept_exactly(tmp_path: Path, trials: int, capacity: int) -> None:
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(bowl, capacity=capacity)
        search = engine([family(X=range(8), Y=range(4))], evaluator, Records(db, IDENTITY, PROBLEM), trials=trials)
        assert run(search).trials == trials
        assert len(evaluator.asked) == trials
        assert len(list(db.measurements(PROBLEM))) >= trials
    assert search.stopped == "trials"


@pytest.mark.parametrize("sampler", EVERYWHERE)
def test_a_space_of_mostly_invalid_configurations(tmp_path: Path, sampler: str) -> None:
    sparse = family(
        valid=lambda config: (config["X"], config["Y"]) in {(1, 1), (9, 3), (17, 0)}, X=range(40), Y=range(4)
    )
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(lambda candidate: took(float(candidate.config["X"])))
        search = engine([sparse], evaluator, Records(db, IDENTITY, PROBLEM), sampler=sampler, trials=30)
        ledger = run(search)
        invalid = list(db.measurements(PROBLEM, outcome=Outcome.INFEASIBLE))
    assert {candidate.config["X"] for candidate in evaluator.asked} == {1, 9, 17}
    assert search.stopped == "exhausted"
    assert ledger.best is not None
    assert ledger.best.ms == 1.0
    assert all(record.measurement.message == "the predicate says no" for record in invalid)
    if sampler in LEARNING:
        assert len({record.candidate for record in invalid}) == len(invalid) > 0


@pytest.mark.parametrize("capacity", [1, 8])
def test_the_least_trials_are_made_when_the_time_is_up(tmp_path: Path, capacity: int) -> None:
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(bowl, capacity=capacity)
        search = engine([family(X=range(8), Y=range(4))], evaluator, Records(db, IDENTITY, PROBLEM), timeout_s=1e-9)
        search.clock = Clock(Budget(None, 1e-9, least=3, grace_s=0.0))
        assert run(search).trials == 3
    assert search.stopped == "timeout"


def test_duplicates_are_answered_from_the_record(tmp_path: Path) -> None:
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(bowl)
        search = engine([family(X=range(6), Y=range(5))], evaluator, Records(db, IDENTITY, PROBLEM), trials=29)
        run(search)
    assert search.duplicates > 0
    assert max(Counter(evaluator.asked).values()) == 1


def test_families_are_searched_together_each_default_first(tmp_path: Path) -> None:
    slow, fast = family("slow", A=[1, 2, 3]), family("fast", B=["x", "y"], C=[1, 2])
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(lambda candidate: took(1.0 if candidate.template == "fast" else 2.0))
        search = engine([slow, fast], evaluator, Records(db, IDENTITY, PROBLEM))
        ledger = run(search)
    assert [candidate.key for candidate in evaluator.asked[:2]] == ["slow A=1", "fast B=x C=1"]
    assert Counter(candidate.template for candidate in evaluator.asked) == {"slow": 3, "fast": 4}
    assert ledger.best is not None
    assert ledger.best.candidate.template == "fast"


@pytest.mark.parametrize("sampler", EVERYWHERE)
def test_only_ok_with_a_real_time_is_ever_ranked(tmp_path: Path, sampler: str) -> None:
    bad = [outcome for outcome in Outcome if outcome is not Outcome.OK]
    answers = [failed(outcome) for outcome in bad] + [took(ms) for ms in (math.nan, 0.0, -1.0, math.inf, 3.0, 2.0)]
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(lambda candidate: answers[int(candidate.config["I"])])
        records = Records(db, IDENTITY, PROBLEM)
        search = engine([family(I=range(len(answers)))], evaluator, records, sampler=sampler)
        ledger = run(search)
        winner = db.winner(PROBLEM, IDENTITY.name)
        stored = {record.candidate.config["I"]: record.measurement.outcome for record in db.measurements(PROBLEM)}
    assert [entry.ms for entry in ledger.ranked()] == [2.0, 3.0]
    assert winner is not None
    assert winner.record.measurement.ms == 2.0
    assert [stored[i] for i in range(len(bad))] == bad
    assert [stored[i] for i in range(len(bad), len(answers))] == [Outcome.LAUNCH_ERROR] * 4 + [Outcome.OK] * 2


def test_a_search_goes_on_where_it_ended(tmp_path: Path) -> None:
    with store(tmp_path) as db:
        space = family(X=range(8), Y=range(4))
        first = FunctionEvaluator(bowl, capacity=3)
        run(engine([space], first, Records(db, IDENTITY, PROBLEM), trials=9))
        second = FunctionEvaluator(bowl, capacity=3)
        search = engine([space], second, Records(db, IDENTITY, PROBLEM), trials=20, seed=5)
        assert search.ledger.trials == 9
        ledger = run(search)
    assert ledger.trials == 20
    assert not set(first.asked) & set(second.asked)
    third = FunctionEvaluator(bowl)
    with store(tmp_path) as db:
        assert run(engine([space], third, Records(db, IDENTITY, PROBLEM), trials=20)).trials == 20
    assert third.asked == []


def test_another_version_of_a_template_is_searched_anew(tmp_path: Path) -> None:
    from dataclasses import replace

    with store(tmp_path) as db:
        space = family(X=range(4), Y=[2])
        run(engine([space], FunctionEvaluator(bowl), Records(db, IDENTITY, PROBLEM)))
        changed = FunctionEvaluator(bowl)
        run(engine([replace(space, hash="other")], changed, Records(db, IDENTITY, PROBLEM)))
    assert len(changed.asked) == 4


def test_two_searches_share_the_work(tmp_path: Path) -> None:
    space = family(X=range(8), Y=range(4))
    with store(tmp_path) as one, store(tmp_path) as two:
        evaluators = [FunctionEvaluator(bowl, capacity=2), FunctionEvaluator(bowl, capacity=2)]
        searches = [
            engine([space], evaluator, Records(db, IDENTITY, PROBLEM), seed=i)
            for i, (evaluator, db) in enumerate(zip(evaluators, (one, two), strict=True))
        ]
        running = [search.steps() for search in searches]
        while running:  # in turn, a round of each
            running = [steps for steps in running if next(steps, "ended") is None]
    asked = evaluators[0].asked + evaluators[1].asked
    assert len(asked) == len(set(asked)) == 32
    assert min(len(evaluator.asked) for evaluator in evaluators) > 5
    for search in searches:
        assert search.ledger.best is not None
        assert search.ledger.best.candidate.config == {"X": 5, "Y": 2}


def test_a_candidate_claimed_elsewhere_is_left_alone_until_it_is_given_up(tmp_path: Path) -> None:
    space = family(X=range(3), Y=[2])
    with store(tmp_path) as db:
        other = Records(db, IDENTITY, PROBLEM)
        taken = space.candidate({"X": 1, "Y": 2})
        assert other.claim(taken).granted
        evaluator = FunctionEvaluator(bowl)
        search = engine([space], evaluator, Records(db, IDENTITY, PROBLEM))
        rounds = search.steps()
        while not search.waiting:
            next(rounds)
        for _ in range(3):
            next(rounds)
        assert {candidate.config["X"] for candidate in evaluator.asked} == {0, 2}
        assert search.stopped is None  # it waits: the space has not been evaluated yet
        other.release()
        for _ in rounds:
            pass
        assert search.stopped == "exhausted"
    assert evaluator.asked[-1] == taken


@pytest.mark.parametrize("outcome", DOUBTFUL)
def test_what_crashed_or_hung_is_tried_once_more_at_the_end(tmp_path: Path, outcome: Outcome) -> None:
    """X=5 would be the best, and failed the first time only; X=1 always fails."""
    tries: Counter[object] = Counter()

    def measure(candidate: Candidate) -> Measurement:
        x = candidate.config["X"]
        tries[x] += 1
        return failed(outcome) if x == 1 or (x == 5 and tries[x] == 1) else bowl(candidate)

    space = family(X=range(8), Y=[2])
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(measure, capacity=3)
        search = engine([space], evaluator, Records(db, IDENTITY, PROBLEM), trials=7, seed=1)
        ledger = run(search)
        assert {candidate.config["X"] for candidate in evaluator.asked[:7]} >= {1, 5}
        assert sorted(candidate.config["X"] for candidate in evaluator.asked[7:]) == [1, 5]
        assert (search.stopped, ledger.trials, search.new) == ("trials", 7, 7)
        assert ledger.outcomes == {Outcome.OK: 6, outcome: 1}
        assert ledger.best is not None
        assert ledger.best.candidate.config["X"] == 5
        stored = {record.candidate.config["X"]: record.measurement for record in db.measurements(PROBLEM)}
        assert {x: m.attempts for x, m in stored.items() if x in {1, 5}} == {1: 2, 5: 2}
        assert len(stored) == 7
        winner = db.winner(PROBLEM, IDENTITY.name)
        assert winner is not None
        assert winner.record.candidate.config["X"] == 5
        run(engine([space], evaluator, Records(db, IDENTITY, PROBLEM), trials=7))  # there is no third try
    assert len(evaluator.asked) == 9


def test_second_tries_are_few_and_come_in_later_runs_too(tmp_path: Path) -> None:
    space = family(X=range(12), Y=[2])
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(lambda candidate: failed(Outcome.TIMEOUT), capacity=5)
        run(engine([space], evaluator, Records(db, IDENTITY, PROBLEM)))
        assert len(evaluator.asked) == 12 + SECOND_TRIES
        search = engine([space], evaluator, Records(db, IDENTITY, PROBLEM))
        run(search)
        assert max(Counter(evaluator.asked).values()) == 2
        assert len(evaluator.asked) == 24
        assert search.new == 0
        run(engine([space], evaluator, Records(db, IDENTITY, PROBLEM)))
    assert len(evaluator.asked) == 24


def test_a_second_try_that_another_worker_makes_is_waited_for(tmp_path: Path) -> None:
    space = family(X=range(2), Y=[2])
    with store(tmp_path) as db:
        other = Records(db, IDENTITY, PROBLEM)
        evaluator = FunctionEvaluator(lambda candidate: failed(Outcome.CRASH))
        search = engine([space], evaluator, Records(db, IDENTITY, PROBLEM, lease_s=0.4))
        rounds = search.steps()
        while len(evaluator.asked) < 2 or search.ledger.trials < 2:
            next(rounds)
        assert all(other.claim(space.candidate({"X": x, "Y": 2}), again=True).granted for x in range(2))
        while not search.waiting:
            next(rounds)
        other.write(space.candidate({"X": 1, "Y": 2}), "source of it", took(1.0))
        other.release()  # it has given up the second one
        for _ in rounds:
            pass
    assert search.ledger.outcomes == {Outcome.OK: 1, Outcome.CRASH: 1}
    assert [candidate.config["X"] for candidate in evaluator.asked[2:]] == [0]


def test_time_runs_out(tmp_path: Path) -> None:
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(bowl)
        search = engine([family(X=range(8), Y=range(4))], evaluator, Records(db, IDENTITY, PROBLEM), timeout_s=1e-9)
        run(search)
    assert search.stopped == "timeout"
    assert evaluator.asked == []


def test_stopping_gives_up_claims(tmp_path: Path) -> None:
    space = family(X=range(8), Y=range(4))
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(bowl, capacity=4)
        search = engine([space], evaluator, Records(db, IDENTITY, PROBLEM))
        for count, _ in enumerate(search.steps()):
            search.stop = count == 2
        assert search.stopped == "interrupted"
        recorded = {record.candidate for record in db.measurements(PROBLEM)}
        dropped = set(evaluator.asked) - recorded
        assert dropped
        assert all(Records(db, IDENTITY, PROBLEM).claim(candidate).granted for candidate in dropped)


def test_the_evaluator_is_told_the_best(tmp_path: Path) -> None:
    with store(tmp_path) as db:
        evaluator = FunctionEvaluator(bowl)
        run(engine([family(X=range(8), Y=range(4))], evaluator, Records(db, IDENTITY, PROBLEM)))
    assert evaluator.best_ms == 1.0


def uncounted(ms: float) -> Measurement:
    timing = Timing("estimated", ms, ms, ms, ms, 0, FALLBACK)
    return replace(took(ms), timing=timing, environment={"driver": UNCOUNTED_DRIVER})


def counted(ms: float) -> Measurement:
    timing = Timing("estimated", ms, ms, ms, ms, 0, METHOD)
    return replace(took(ms), timing=timing, environment={"driver": DRIVER})


def test_estimates_of_uncounted_work_compete_with_none_that_is_counted(tmp_path: Path) -> None:
    """However fast they claim to be, whenever they come: in the search, in the database, in the next search."""
    device = DeviceIdentity("cpu", IDENTITY.spec)
    space = family(X=range(6))

    def measure(candidate: Candidate) -> Measurement:
        x = int(candidate.config["X"])
        return uncounted(0.001 * (x + 1)) if x % 2 == 0 else counted(10.0 - x)

    for resumed in (0, 6):
        with store(tmp_path) as db:
            records, evaluator = Records(db, device, PROBLEM, driver=DRIVER), FunctionEvaluator(measure)
            families, options = Families([space]), Options(sampler="grid")
            findings = Session(
                families, records, evaluator, Clock(Budget(None, None)), options, estimated=True
            ).run()  # fmt: skip
            assert [entry.candidate.config["X"] for entry in findings.ranked] == [5, 3, 1, 0, 2, 4]
            assert findings.resumed == resumed
            assert len(evaluator.asked) == 6 - resumed
            assert evaluator.best_ms == 5.0  # nothing is given up because of a figure that was not counted
            winner = db.winner(PROBLEM, device.name)
            assert winner is not None
            assert winner.record.candidate.config["X"] == 5
            assert [record.candidate.config["X"] for record in db.trials(fastest=True)] == [5, 3, 1, 0, 2, 4]


def test_what_was_not_counted_tells_the_sampler_nothing() -> None:
    candidate = family(X=range(2)).candidate({"X": 1})
    assert Entry(candidate, counted(2.0), "", 1).value == math.log(2.0)
    assert Entry(candidate, uncounted(0.5), "", 2).value is None
    pruned = replace(uncounted(0.5), outcome=Outcome.PRUNED)
    assert Entry(candidate, pruned, "", 3).value is None
    timings = [measurement.timing for measurement in (counted(1.0), uncounted(1.0), took(1.0))]
    assert [timing and timing.label for timing in timings] == ["estimated", "estimated, not counted", "measured"]


def test_what_costs_a_trial() -> None:
    assert costs(took(1.0))
    assert costs(failed(Outcome.CRASH))
    assert costs(failed(Outcome.INFEASIBLE))  # it had been built
    assert not costs(Measurement(Outcome.INFEASIBLE, "ruled out before"))


def spilling(ms: float) -> Measurement:
    return replace(took(ms), resources=(KernelResources("k", 255, 96, 0, 0, 128, 0.125),))


@pytest.mark.parametrize(("spills", "winner", "finalists"), [(True, 0, 2), (False, 1, 1)])
def test_winners_that_must_not_spill(tmp_path: Path, spills: bool, winner: int, finalists: int) -> None:
    def measure(candidate: Candidate) -> Measurement:
        return spilling(1.0) if candidate.config["X"] == 0 else took(2.0)

    with store(tmp_path) as db:
        records, evaluator = Records(db, IDENTITY, PROBLEM), FunctionEvaluator(measure)
        families, options = Families([family(X=range(2))]), Options(sampler="grid", spills=spills)
        clock = Clock(Budget(None, None))
        findings = Session(families, records, evaluator, clock, options, estimated=False).run()
        assert [entry.candidate.config["X"] for entry in findings.ranked] == [winner, 1][:finalists]
        standing = records.standing("measured")
    assert standing is not None
    assert standing.candidate.config["X"] == winner
