"""What becomes of a problem that nobody has tuned: the likeliest answer, a search first, or an error."""

from collections.abc import Callable
from typing import Any

from autotune.answers.best import Best
from autotune.core import settings
from autotune.core.errors import NoFeasibleConfiguration, UsageError

WAYS = ("nearest", "quick", "search", "error")


def way_of(tune: str | None) -> str:
    """What is to be done on a miss: as asked, else `AUTOTUNE_ON_MISS`, else `nearest`.

    Raises:
        UsageError: it is none of `WAYS`.
    """
    way, where = (tune, "tune") if tune is not None else (settings.on_miss() or WAYS[0], "AUTOTUNE_ON_MISS")
    if way not in WAYS:
        raise UsageError(f"{where}={way!r} is none of {', '.join(WAYS)}")
    return way


def found_or_tuned(look: Callable[[], Best], way: str, **searched: Any) -> Best:
    """What a look-up answers; with `quick` and `search` after a search, unless the answer is exact already.

    Args:
        look: the look-up.
        way: of `WAYS`.
        searched: arguments of `autotune.search` but for `quick`.

    Raises:
        UsageError: with `error`, nothing is known of the very problem.
        NoFeasibleConfiguration: the search found no kernel that is right.
        AutotuneError: as look-ups and searches do.
    """
    found = look()
    if found.answer == "exact" or way == "nearest":
        return found
    if way == "error":
        raise UsageError(
            f"nothing is known of {found.problem} on {found.device.title}, only {found.answer} answers: tune it "
            "(autotune search, or tune='quick'), or take what is likely (tune='nearest')"
        )
    from autotune.tuning.search import search

    result = search(quick=way == "quick", **searched)
    if result.best is None:
        raise NoFeasibleConfiguration(
            f"a search for {found.problem} on {found.device.title} found no kernel that is right"
        )
    return look()
