"""A code-generating kernel autotuner for attention on NVIDIA GPUs.

>>> import autotune
>>> autotune.best(op="backward", T=1024)  # doctest: +SKIP
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.check import Checked, check
    from autotune.export import export
    from autotune.kernel import Kernel, kernel
    from autotune.lookup import Best, best
    from autotune.search import SearchResult, search

__version__ = "0.1.0"
__all__ = ["Best", "Checked", "Kernel", "SearchResult", "best", "check", "export", "kernel", "search"]

_HOMES = {
    "Best": "autotune.lookup",
    "Checked": "autotune.check",
    "Kernel": "autotune.kernel",
    "SearchResult": "autotune.search",
    "best": "autotune.lookup",
    "check": "autotune.check",
    "export": "autotune.export",
    "kernel": "autotune.kernel",
    "search": "autotune.search",
}


class _Package(ModuleType):
    """Keeps `autotune.search` the function when a submodule of that name has been imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    """Import on first use: `import autotune` alone stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


sys.modules[__name__].__class__ = _Package
