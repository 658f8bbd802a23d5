"""CMA-ES, an evolution strategy that adapts its covariance, over indices in one flat space."""

from optuna.samplers import CmaEsSampler

from autotune.tuning.encoding import Grille
from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.strategy import Strategy
from autotune.tuning.study import OptunaStrategy, accept_experiments


def make(families: Families, seen: Seen, seed: int) -> Strategy:  # noqa: ARG001 - the search answers repeats itself
    """CMA-ES from Optuna, by the package cmaes."""
    accept_experiments()
    sampler = CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return OptunaStrategy(sampler, Grille(families), penalise=True)
