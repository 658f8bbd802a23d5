"""The search: candidates asked, evaluated, recorded; at the end a winner.

`autotune.search` is this package and, in the public interface, the function of the same name; the package can
be called like it, so that it does not matter which of the two an import has left there.
"""

import sys
from types import ModuleType
from typing import Any

from autotune.search.api import search, sweep
from autotune.search.result import Ranked, SearchResult

__all__ = ["Ranked", "SearchResult", "search", "sweep"]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return search(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
