"""The search: candidates asked, evaluated, recorded; at the end a winner."""

from autotune.search.api import search, sweep
from autotune.search.result import Ranked, SearchResult

__all__ = ["Ranked", "SearchResult", "search", "sweep"]
