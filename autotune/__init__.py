"""A code-generating kernel autotuner for attention on NVIDIA GPUs.

>>> import autotune
>>> autotune.best(op="backward", T=1024)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autotune.core.version import __version__

if TYPE_CHECKING:
    from autotune.answers.best import Best
    from autotune.answers.export import export
    from autotune.answers.kernel import Kernel, kernel
    from autotune.answers.lookup import best
    from autotune.checker.check import Checked, check
    from autotune.tuning.result import SearchResult
    from autotune.tuning.search import search

__all__ = ["Best", "Checked", "Kernel", "SearchResult", "__version__", "best", "check", "export", "kernel", "search"]

_HOMES = {
    "Best": "autotune.answers.best",
    "Checked": "autotune.checker.check",
    "Kernel": "autotune.answers.kernel",
    "SearchResult": "autotune.tuning.result",
    "best": "autotune.answers.lookup",
    "check": "autotune.checker.check",
    "export": "autotune.answers.export",
    "kernel": "autotune.answers.kernel",
    "search": "autotune.tuning.search",
}


_INTEGRATIONS = ("torch", "transformers")


def __getattr__(name: str) -> Any:
    """Import on first use: `import autotune` alone stays light."""
    if name in _INTEGRATIONS:
        return import_module(f"autotune.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The API, whether it has been imported yet or not."""
    return sorted(__all__)
