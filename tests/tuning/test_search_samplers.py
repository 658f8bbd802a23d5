"""Samplers: what they see, and how they fare on a space with a known optimum."""

import importlib.util
import pkgutil
import statistics

import numpy as np
import optuna
import pytest

from autotune.core.errors import UsageError
from autotune.core.outcome import Outcome
from autotune.core.values import Value
from autotune.devices.recorded import RecordedResult, RecordedSpace
from autotune.tuning import samplers
from autotune.tuning.encoding import Grille, Tree
from autotune.tuning.joint_space import Families
from autotune.tuning.replayed import replay
from autotune.tuning.samplers import make_strategy
from autotune.tuning.study import OptunaStrategy
from tests.search_doubles import family


def recording() -> RecordedSpace:
    """1,000 configurations; A and B matter, C not; a tenth did not compile, B=4 with A>7 is ruled out."""
    results: dict[tuple[Value, ...], RecordedResult] = {}
    for a in range(10):
        for b in range(10):
            for c in range(10):
                ms = 1.0 + 0.3 * abs(a - 7) + 0.2 * abs(b - 3) + 0.001 * c
                result = RecordedResult(Outcome.OK, ms)
                if (a + b + c) % 10 == 9:
                    result = RecordedResult(Outcome.COMPILE_ERROR, None)
                if b == 4 and a > 7:
                    result = RecordedResult(Outcome.INFEASIBLE, None)
                results[a, b, c] = result
    ten = tuple(range(10))
    return RecordedSpace("known", "NVIDIA H200", {"A": ten, "B": ten, "C": ten}, results)


@pytest.mark.parametrize("capacity", [1, 8])
def test_tpe_beats_random(capacity: int) -> None:
    space = recording()

    def typical(sampler: str) -> float:
        found = [replay(space, sampler=sampler, trials=60, seed=seed, capacity=capacity).best for seed in range(5)]
        return statistics.median(best.ms for best in found if best is not None)

    assert typical("tpe") < typical("random")
    assert typical("tpe") <= space.best_ms * 1.1


def test_cmaes_gets_near() -> None:
    best = replay(recording(), sampler="cmaes", trials=120, seed=1).best
    assert best is not None
    assert best.ms <= recording().best_ms * 1.2


def test_a_replay_counts_what_was_evaluated() -> None:
    ledger = replay(recording(), sampler="tpe", trials=40, seed=0)
    assert ledger.trials == 40
    evaluated = ledger.outcomes[Outcome.OK] + ledger.outcomes[Outcome.COMPILE_ERROR]
    assert evaluated == 40


def test_a_grid_is_walked_once_in_order() -> None:
    families = Families([family("a", A=[1, 2]), family("b", B=["x"], C=[1, 2, 3])])
    strategy = make_strategy("grid", families, lambda candidate: candidate.key == "a A=2", 0)
    asked = [proposal.candidate.key for proposal in iter(strategy.ask, None)]
    assert asked == ["a A=1", "b B=x C=1", "b B=x C=2", "b B=x C=3"]
    assert strategy.ask() is None


def test_random_repeats_with_its_seed_and_never_repeats_a_candidate() -> None:
    families = Families([family(A=range(5), B=range(5))])

    def walk() -> list[str]:
        seen: list[str] = []
        strategy = make_strategy("random", families, lambda candidate: candidate.key in seen, 3)
        while (proposal := strategy.ask()) is not None:
            seen.append(proposal.candidate.key)
        return seen

    walks = [walk(), walk()]
    assert walks[0] == walks[1]
    assert len(set(walks[0])) == 25
    assert walks[0] != sorted(walks[0])


def test_an_unknown_sampler() -> None:
    with pytest.raises(UsageError, match=r"'anneal'.*tpe, gp, cmaes, random, grid"):
        make_strategy("anneal", Families([family(A=[1])]), lambda candidate: False, 0)


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_gp_without_torch_names_the_extra() -> None:
    with pytest.raises(UsageError, match=r"autotune-kernels\[torch\]"):
        make_strategy("gp", Families([family(A=[1])]), lambda candidate: False, 0)


def test_a_tree_has_categorical_parameters_by_family() -> None:
    families = Families([family("a", A=[1, 2], S=["x", "y"]), family("b", A=[4, 8])])
    tree = Tree(families)
    candidate = families["a"].candidate({"A": 2, "S": "y"})
    assert tree.parameters(candidate) == {"template": "a", "a.A": 2, "a.S": "y"}
    assert set(tree.distributions) == {"template", "a.A", "a.S", "b.A"}
    assert all(isinstance(d, optuna.distributions.CategoricalDistribution) for d in tree.distributions.values())


def test_a_grille_has_indices_of_everything() -> None:
    families = Families([family("a", A=[1, 2], ONE=[7]), family("b", B=[16, 32, 64])])
    grille = Grille(families)
    assert grille.parameters(families["b"].candidate({"B": 64})) == {"template": 1, "a.A": 0, "b.B": 2}
    assert set(grille.distributions) == {"template", "a.A", "b.B"}


@pytest.mark.parametrize("encoding", [Tree, Grille])
def test_what_is_proposed_comes_back(encoding: type[Tree] | type[Grille]) -> None:
    families = Families([family("a", A=[1, 2], F=[False, True]), family("b", B=["p", "q", "r"])])
    strategy = OptunaStrategy(optuna.samplers.RandomSampler(seed=0), encoding(families))
    for candidate in families.candidates():
        proposal = strategy.propose(candidate)
        assert proposal.candidate == candidate
        strategy.tell(proposal, 0.5)


def test_failures_are_pruned_never_failed() -> None:
    families = Families([family(A=[1, 2, 3])])
    strategy = OptunaStrategy(optuna.samplers.RandomSampler(seed=0), Tree(families))
    one, two, three = families.candidates()
    strategy.tell(strategy.propose(one), 1.0)
    strategy.tell(strategy.propose(two), None)
    strategy.add(three, None)
    states = [trial.state.name for trial in strategy.study.trials]
    assert states == ["COMPLETE", "PRUNED", "PRUNED"]


def test_samplers_that_ignore_pruned_trials_get_a_penalty() -> None:
    families = Families([family(A=[1, 2, 3])])
    strategy = OptunaStrategy(optuna.samplers.RandomSampler(seed=0), Grille(families), penalise=True)
    one, two, three = families.candidates()
    strategy.tell(strategy.propose(one), 1.0)
    strategy.add(two, 3.0)
    strategy.tell(strategy.propose(three), None)
    assert [trial.value for trial in strategy.study.trials] == pytest.approx([1.0, 3.0, 3.0 + np.log(4.0)])


def test_every_sampler_is_a_module_with_a_line() -> None:
    modules = {module.name for module in pkgutil.iter_modules(samplers.__path__)}
    assert modules - {"walk"} == {f"by_{name}" for name in samplers.SAMPLERS}
