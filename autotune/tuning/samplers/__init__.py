"""The samplers of `--sampler`: each a module `by_NAME`, whose `make` gives the strategy, and a name in `SAMPLERS`."""

from importlib import import_module
from typing import TYPE_CHECKING

from autotune.core.errors import UsageError

if TYPE_CHECKING:
    from autotune.tuning.joint_space import Families, Seen
    from autotune.tuning.strategy import Strategy

SAMPLERS = ("parzen", "tpe", "gp", "cmaes", "random", "grid")


def require_sampler(name: str) -> None:
    """Raise UsageError if there is no sampler of that name."""
    if name not in SAMPLERS:
        raise UsageError(f"unknown sampler {name!r}; there are {', '.join(SAMPLERS)}")


def make_strategy(name: str, families: "Families", seen: "Seen", seed: int) -> "Strategy":
    """The strategy that `--sampler NAME` stands for.

    Args:
        name: of the sampler.
        families: what is searched.
        seen: whether a candidate is known already; asked by samplers that propose nothing twice.
        seed: makes the proposals repeatable.

    Raises:
        UsageError: an unknown name, or a sampler whose library is not installed.
    """
    require_sampler(name)
    strategy: Strategy = import_module(f"{__name__}.by_{name}").make(families, seen, seed)
    return strategy
