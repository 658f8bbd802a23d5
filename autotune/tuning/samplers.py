"""The samplers by name."""

import importlib.util
import warnings
from typing import Literal, get_args

import numpy as np

from autotune.core.errors import UsageError
from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.strategy import Strategy
from autotune.tuning.walks import Grid, RandomWalk

SamplerName = Literal["tpe", "gp", "cmaes", "random", "grid"]
SAMPLERS: tuple[str, ...] = get_args(SamplerName)


def make_strategy(name: str, families: Families, seen: Seen, seed: int) -> Strategy:
    """The strategy that `--sampler NAME` stands for.

    `tpe` sees categorical parameters in a space that branches by family. `gp` and `cmaes` see indices in one flat
    space. `random` and `grid` walk over what has not been seen yet.

    Raises:
        UsageError: an unknown name, or `gp` without PyTorch.
    """
    if name == "grid":
        return Grid(families, seen)
    if name == "random":
        return RandomWalk(families, seen, np.random.default_rng(seed))
    if name not in SAMPLERS:
        raise UsageError(f"unknown sampler {name!r}; there are {', '.join(SAMPLERS)}")
    return _learning(name, families, seed)


_CANDIDATES = 96
"""Draws that TPE compares for one proposal."""


def _good(finished: int) -> int:
    """How many of the trials TPE models as good: a twentieth, at most ten.

    Optuna's tenth, at most 25, is too many where a few configurations in thousands are fast (docs/decisions.md).
    """
    return max(1, min(finished // 20 + 1, 10))


def _learning(name: str, families: Families, seed: int) -> Strategy:
    import optuna
    from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, TPESampler

    from autotune.tuning.encoding import Grille, Tree
    from autotune.tuning.study import OptunaStrategy

    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="`gamma` has been deprecated", category=FutureWarning)
    if name == "tpe":
        tpe = TPESampler(
            seed=seed, multivariate=True, group=True, constant_liar=True, gamma=_good, n_ei_candidates=_CANDIDATES
        )
        return OptunaStrategy(tpe, Tree(families))
    sampler: BaseSampler
    if name == "gp":
        if importlib.util.find_spec("torch") is None:
            raise UsageError("the sampler gp needs PyTorch: pip install 'autotune[torch]', or use --sampler tpe")
        sampler = GPSampler(seed=seed, deterministic_objective=True)
    else:
        sampler = CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return OptunaStrategy(sampler, Grille(families), penalise=True)
