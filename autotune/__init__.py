"""A code-generating kernel autotuner for attention on NVIDIA GPUs.

>>> import autotune
>>> autotune.best(op="backward", T=1024)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.export import export
    from autotune.lookup import Best, best
    from autotune.search import SearchResult, search

__version__ = "0.1.0"
__all__ = ["Best", "SearchResult", "best", "export", "search"]

_HOMES = {
    "Best": "autotune.lookup",
    "SearchResult": "autotune.search",
    "best": "autotune.lookup",
    "export": "autotune.export",
    "search": "autotune.search",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import autotune` alone stays light.

    A submodule of the same name would shadow the function, so the function is stored in its place.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
