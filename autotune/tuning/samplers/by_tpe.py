"""Optuna's tree-structured Parzen estimator over categorical parameters, in a space that branches by family."""

import warnings

from optuna.samplers import TPESampler

from autotune.tuning.encoding import Tree
from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.strategy import Strategy
from autotune.tuning.study import OptunaStrategy, accept_experiments

_CANDIDATES = 96
"""Draws that are compared for one proposal."""


def make(families: Families, seen: Seen, seed: int) -> Strategy:  # noqa: ARG001 - the search answers repeats itself
    """TPE that expects what is under way to be bad, so that it asks for something else meanwhile."""
    accept_experiments()
    warnings.filterwarnings("ignore", message="`gamma` has been deprecated", category=FutureWarning)
    sampler = TPESampler(
        seed=seed, multivariate=True, group=True, constant_liar=True, gamma=_good, n_ei_candidates=_CANDIDATES
    )
    return OptunaStrategy(sampler, Tree(families))


def _good(finished: int) -> int:
    """How many of the trials are modelled as good: a twentieth, at most ten.

    Optuna's tenth, at most 25, is too many where a few configurations in thousands are fast (docs/decisions.md).
    """
    return max(1, min(finished // 20 + 1, 10))
