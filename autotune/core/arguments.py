"""What callers give to public functions, judged before it is used: a wrong type is said with the value, as a wrong
value is.
"""

import math
import os
from collections.abc import Mapping
from numbers import Integral, Real

from autotune.core.errors import UsageError


def require_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise UsageError for what is no whole number of at least `least` and at most `most`; NumPy's count as such."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and least <= value and (most is None or value <= most)):  # type: ignore[operator]
        upper = "" if most is None else f" and at most {most}"
        raise UsageError(f"{name}={value!r} must be {'' if whole else 'a whole number, '}at least {least}{upper}")


def is_number(value: object) -> bool:
    """Whether it is a finite real number; a truth value is none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def require_positive(name: str, value: object, what: str) -> None:
    """Raise UsageError for what is no finite number above 0; `what` it is ends the message."""
    if not (is_number(value) and value > 0):  # type: ignore[operator]
        raise UsageError(f"{name}={value!r} must be a number, and more than 0: {what}")


def require_flags(**given: object) -> None:
    """Raise UsageError for what is neither true nor false; 1 and 0 are, and NumPy's truth values."""
    for name, value in given.items():
        numpys = getattr(value, "shape", None) == () and getattr(getattr(value, "dtype", None), "kind", "") == "b"
        if not (isinstance(value, bool) or numpys or (isinstance(value, Integral) and value in (0, 1))):
            raise UsageError(f"{name}={value!r} must be True or False")


def require_text(name: str, value: object, example: str) -> None:
    """Raise UsageError for what is no text."""
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r} must be text, such as {example!r}")


def require_path(name: str, value: object, what: str) -> None:
    """Raise UsageError for what is neither text nor a path of text."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise UsageError(f"{name}={value!r} must be {what}, as text or a path")
    if "\0" in os.fspath(value):
        raise UsageError(f"{name}={value!r} must be {what}; no file has a zero byte in its name")


def require_values(name: str, value: object) -> None:
    """Raise UsageError for what are no values by name."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"{name}={value!r} must be values by the names of parameters, such as {{'BLOCK_M': 64}}")


def require_function(name: str, value: object) -> None:
    """Raise UsageError for what cannot be called."""
    if not callable(value):
        raise UsageError(f"{name}={value!r} must be a function")
