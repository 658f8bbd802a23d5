"""The database: devices, problems, candidates, measurements of every outcome, winners.

`open_store(path_or_url)` gives a `Store`; what it hands out are the plain records of `autotune.store.records`.
Names are loaded when first used: a lookup reads SQLite without loading SQLAlchemy.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.store.records import (
        ClaimAnswer,
        DeviceSummary,
        Owner,
        ProblemSummary,
        StoredMeasurement,
        StoredSearch,
        StoredWinner,
    )
    from autotune.store.store import Store, open_store

__all__ = [
    "ClaimAnswer",
    "DeviceSummary",
    "Owner",
    "ProblemSummary",
    "Store",
    "StoredMeasurement",
    "StoredSearch",
    "StoredWinner",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module("autotune.store.store" if name in {"Store", "open_store"} else "autotune.store.records")
    return getattr(module, name)
