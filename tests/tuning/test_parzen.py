"""The sampler `parzen`: what it asks in a search, and what it does for Optuna's own users."""

import itertools
import statistics
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import Trial, TrialState, create_trial

from autotune.core.candidate import Candidate
from autotune.core.values import Value
from autotune.devices.replay import ReplayDevice
from autotune.tuning.joint_space import Families
from autotune.tuning.replayed import Player, course, recorded_family, replay
from autotune.tuning.samplers import make_strategy
from autotune.tuning.samplers.by_parzen import ParzenSampler
from autotune.tuning.study import OptunaStrategy
from tests.search_doubles import family
from tests.tuning.test_search_samplers import recording

optuna.logging.set_verbosity(optuna.logging.ERROR)
SIX = list(range(6))


def two_families() -> Families:
    """`a` has 18 valid configurations, `b` 6."""
    odd = family("a", lambda config: (int(config["X"]) + int(config["Y"])) % 2 == 1, X=SIX, Y=SIX)
    return Families([odd, family("b", Z=SIX)])


def strategy(families: Families, seed: int = 0) -> OptunaStrategy:
    made = make_strategy("parzen", families, lambda candidate: False, seed)
    assert isinstance(made, OptunaStrategy)
    return made


def test_all_that_is_asked_is_valid_and_new_until_nothing_is_left() -> None:
    families = two_families()
    search = strategy(families)
    asked = []
    for _ in range(24):
        proposal = search.ask()
        asked.append(proposal.candidate)
        search.tell(proposal, float(len(proposal.candidate.key)))
    assert set(asked) == set(families.candidates())
    assert families.why_not(search.ask().candidate) is None  # again one of them: there is no other


def test_what_is_under_way_is_not_asked_again() -> None:
    search = strategy(two_families())
    assert len({search.ask().candidate for _ in range(24)}) == 24


def test_what_somebody_else_found_is_not_asked() -> None:
    families = two_families()
    search = strategy(families)
    every = list(families.candidates())
    for i, candidate in enumerate(every[:-1]):
        search.add(candidate, None if i % 3 else 0.1 * i)
    assert search.ask().candidate == every[-1]


@pytest.mark.parametrize("seed", range(3))
def test_after_the_first_trials_it_asks_near_the_best(seed: int) -> None:
    """In a space whose time depends on A alone it learns which A, from times and failures alike."""
    families = Families([family(A=SIX, B=range(50))])
    search = strategy(families, seed)
    for b in range(4):
        for a in SIX:
            search.add(families["fam"].candidate({"A": a, "B": b}), None if a == 5 else float(abs(a - 2)))
    asked = [search.ask().candidate.config for _ in range(3)]
    assert {config["A"] for config in asked} == {2}
    assert len({config["B"] for config in asked}) == 3  # under way counts as bad: not the same again


def test_it_prefers_the_family_of_the_fast_trials() -> None:
    families = Families([family("a", X=range(30)), family("b", X=range(30))])
    search = strategy(families)
    for x in range(12):
        search.add(families["a"].candidate({"X": x}), 1.0 + 0.01 * x)
        search.add(families["b"].candidate({"X": x}), 2.0 + 0.01 * x)
    assert search.ask().candidate.template == "a"


def test_proposals_repeat_with_the_seed() -> None:
    def asked(seed: int) -> list[str]:
        search = strategy(two_families(), seed)
        keys: list[str] = []
        for _ in range(22):
            proposal = search.ask()
            search.tell(proposal, float(len(keys) % 7))
            keys.append(proposal.candidate.key)
        return keys

    assert asked(5) == asked(5)
    assert asked(5) != asked(6)


@pytest.mark.parametrize("capacity", [1, 8])
def test_it_finds_the_optimum_of_a_known_space(capacity: int) -> None:
    space = recording()
    found = [replay(space, sampler="parzen", trials=60, seed=seed, capacity=capacity).best for seed in range(5)]
    assert statistics.median(best.ms for best in found if best is not None) <= space.best_ms * 1.01


def test_thousands_of_trials_of_which_some_failed() -> None:
    families = Families([family(A=range(40), B=range(40), C=range(40))])
    search = strategy(families)
    rng = np.random.default_rng(0)
    for a, b, c in np.unique(rng.integers(0, 40, (3000, 3)), axis=0).tolist():
        value = None if c == 7 else float(abs(a - 20) + abs(b - 20))
        search.add(families["fam"].candidate({"A": a, "B": b, "C": c}), value)
    config = search.ask().candidate.config
    assert abs(int(config["A"]) - 20) + abs(int(config["B"]) - 20) <= 4


def test_it_says_which_of_those_under_way_are_promising_by_now() -> None:
    families = Families([family("a", X=range(30)), family("b", A=SIX, B=range(50))])
    search = strategy(families)
    under_way = [families["a"].candidate({"X": 3}), families["b"].candidate({"A": 2, "B": 40})]
    under_way += [families["b"].candidate({"A": 4, "B": 40})]
    asked = [search.propose(candidate) for candidate in under_way]
    assert search.order(under_way) is None  # nothing is known
    for b in range(5):
        for a in SIX:
            search.add(families["b"].candidate({"A": a, "B": b}), float(abs(a - 2)))
        search.add(families["a"].candidate({"X": b + 10}), 9.0)
    ordered = search.order(under_way)
    assert ordered is not None
    assert ordered[0].config == {"A": 2, "B": 40}
    search.tell(asked[0], 9.0)
    assert search.order(under_way[1:]) == [under_way[1], under_way[2]]


def test_what_is_withdrawn_is_as_if_it_had_never_been_asked() -> None:
    families = two_families()
    search = strategy(families)
    proposals = [search.ask() for _ in range(24)]
    for proposal in (proposals[3], proposals[23], proposals[10]):
        search.withdraw(proposal)
    for proposal in proposals[11:20]:
        search.tell(proposal, 1.0)
    again = {search.ask().candidate for _ in range(3)}
    assert again == {proposals[3].candidate, proposals[10].candidate, proposals[23].candidate}
    for proposal in proposals[20:23]:
        search.tell(proposal, 0.1)  # they are found where they have moved to


@pytest.mark.parametrize("capacity", [4, 64])
def test_what_is_dropped_is_no_trial(capacity: int) -> None:
    space = recording()
    went = course(space, "parzen", 60, 0, capacity)
    assert len(went.steps) == 60
    assert went.built == 60 if capacity == 4 else went.built > 70
    assert went.time < 60 * 16  # than one after the other


def test_what_was_dropped_is_not_built_again() -> None:
    player = Player(ReplayDevice(recording()), 8, 6.0)
    family = recorded_family(recording())
    first = [family.candidate(config) for config in itertools.islice(recording().configs, 8)]

    def last_first(ready: Sequence[Candidate]) -> list[Candidate]:
        return sorted(ready, key=first.index, reverse=True)

    for candidate in first:
        player.submit(candidate)
    [found] = player.poll(0.0)
    assert (found.candidate, player.now) == (first[0], 7.0)
    gone = player.reconsider(last_first)
    assert gone == [first[1]]  # six are what the device needs until more is built
    player.submit(gone[0])
    assert (player.built, player.reconsider(last_first)) == (8, [first[1]])
    for candidate in reversed(first[2:]):
        assert [found.candidate for found in player.poll(0.0)] == [candidate]
    player.submit(first[1])
    assert [found.candidate for found in player.poll(0.0)] == [first[1]]
    assert (player.now, player.built) == (14.0, 8)


def test_what_is_under_way_counts_as_what_is_expected_of_it() -> None:
    """A is slow but for 2 and 3, B does not matter: under way are one like the fast ones and one like the slow ones."""
    families = Families([family("a", A=SIX, B=range(50))])
    search = strategy(families)
    for b in range(6):
        for a in SIX:
            search.add(families["a"].candidate({"A": a, "B": b}), 0.0 if a in {2, 3} else 1.0)
    for a in (2, 4):
        search.propose(families["a"].candidate({"A": a, "B": 20}))
    sampler = search.study.sampler
    assert isinstance(sampler, ParzenSampler)
    history = sampler._follow(search.study)
    [tried] = history.branches
    values, rng = tried.values, np.random.default_rng(0)
    scaled = (values - np.nanmean(values)) / np.nanstd(values)
    expected = {tried: tried.expected(tried.rows[:1], scaled, rng)}
    assert expected[tried].pending.tolist() == [36, 37]
    assert expected[tried].hopes[0] < -1.0 < 0.0 < expected[tried].hopes[1]
    for _ in range(5):  # whichever share is taken
        good, bad = history._parted(values, scaled, expected, rng, waiting=True)
        assert set(good) <= {*np.flatnonzero(values == 0.0), 36}
        assert sorted([*good, *bad]) == list(range(38))
        assert 37 in bad
        good, bad = history._parted(values, scaled, expected, rng, waiting=False)
        assert sorted([*good, *bad]) == list(range(36))


def branching(trial: Trial) -> float:
    """Best: kind "q", y=3, whatever z is."""
    if trial.suggest_categorical("kind", ["p", "q"]) == "p":
        return 5.0 + float(trial.suggest_int("x", 0, 9))
    y, z = trial.suggest_int("y", 0, 9), trial.suggest_categorical("z", [0.5, True, "text"])
    if z == "text" and y > 5:
        raise optuna.TrialPruned
    return float(abs(y - 3))


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_plain_study_that_branches(direction: Literal["minimize", "maximize"]) -> None:
    study = optuna.create_study(direction=direction, sampler=ParzenSampler(seed=1))
    sign = 1.0 if direction == "minimize" else -1.0
    study.optimize(lambda trial: sign * branching(trial), n_trials=40)
    assert study.best_value == 0.0
    parameters = [tuple(sorted((name, str(v)) for name, v in trial.params.items())) for trial in study.trials]
    assert len(set(parameters)) >= 35  # but for its first trials, when it does not know the space, nothing twice


def test_a_plain_study_with_a_constraint() -> None:
    def valid(parameters: Any) -> bool:
        return bool(parameters["a"] != parameters["b"])

    study = optuna.create_study(sampler=ParzenSampler(valid=valid, seed=1, startup=5))
    study.enqueue_trial({"a": 0, "b": 1})
    study.optimize(lambda t: t.suggest_int("a", 0, 5) + t.suggest_categorical("b", SIX), n_trials=31)
    assert all(valid(trial.params) for trial in study.trials)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 30


def test_a_number_that_is_no_list_is_left_to_chance() -> None:
    study = optuna.create_study(sampler=ParzenSampler(seed=1, startup=3))
    study.optimize(lambda t: t.suggest_float("f", 0.0, 1.0) + t.suggest_int("a", 0, 3), n_trials=8)
    assert len({trial.params["f"] for trial in study.trials}) == 8


def test_several_objectives_are_refused() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=ParzenSampler())
    with pytest.raises(ValueError, match="one value"):
        study.ask().suggest_categorical("a", [1, 2])


def test_trials_of_another_process_that_are_running() -> None:
    """It reads the study alone, so that workers may share one: a trial that runs elsewhere is taken."""
    distribution = {"a": CategoricalDistribution([1, 2, 3])}
    study = optuna.create_study(sampler=ParzenSampler(seed=0, startup=0))
    values: tuple[Value, ...] = (1, 2)
    states = (TrialState.COMPLETE, TrialState.RUNNING)
    for a, state in zip(values, states, strict=True):
        value = 1.0 if state is TrialState.COMPLETE else None
        study.add_trial(create_trial(state=state, value=value, params={"a": a}, distributions=dict(distribution)))
    assert study.ask().suggest_categorical("a", [1, 2, 3]) == 3
