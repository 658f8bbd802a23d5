"""Optuna's Gaussian process over indices in one flat space; needs PyTorch."""

import importlib.util

from optuna.samplers import GPSampler

from autotune.core.errors import UsageError
from autotune.core.extras import install
from autotune.tuning.encoding import Grille
from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.strategy import Strategy
from autotune.tuning.study import OptunaStrategy, accept_experiments


def make(families: Families, seen: Seen, seed: int) -> Strategy:  # noqa: ARG001 - the search answers repeats itself
    """A Gaussian process that takes times as exact.

    Raises:
        UsageError: there is no PyTorch.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"the sampler gp needs PyTorch: {install('torch')}, or use --sampler tpe")
    accept_experiments()
    return OptunaStrategy(GPSampler(seed=seed, deterministic_objective=True), Grille(families), penalise=True)
