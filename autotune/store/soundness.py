"""What a database says of a measurement, looked at before it is believed: files are edited, and damaged.

Nothing that is not sound is ranked, listed, exported or answered with: whoever reads it is told which record it is.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.core.errors import StoreError
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome

_HINT = "the database was edited or damaged: restore a copy, or name another with --db"


def is_time(ms: object) -> bool:
    """Whether a value can be the time of a kernel in milliseconds: a number, finite, more than 0."""
    return isinstance(ms, int | float) and not isinstance(ms, bool) and math.isfinite(ms) and ms > 0


def fault(measurement: Measurement) -> str:
    """What no trial can have found; empty where nothing is wrong."""
    timing, verification = measurement.timing, measurement.verification
    if timing is not None:
        for name in ("median_ms", "q1_ms", "q3_ms", "min_ms"):
            if not is_time(getattr(timing, name)):
                return f"{name}={getattr(timing, name)!r} is no time that a kernel can take"
    if measurement.energy is not None:
        for name in ("mj", "power_w", "call_ms", "seconds"):
            if not is_time(getattr(measurement.energy, name)):
                return f"{name}={getattr(measurement.energy, name)!r} is nothing that a run of a kernel can have"
    if measurement.outcome is Outcome.OK:
        if timing is None:
            return "its outcome is ok, and it has no time"
        if verification is not None and not verification.passed:
            return "its outcome is ok, and its verification did not pass"
    return ""


def unsound(record: object, why: str) -> StoreError:
    """The error of a record, by its id."""
    return StoreError(f"record {record} is not sound: {why}; {_HINT}")


def unsound_winner(record: object, why: str) -> StoreError:
    """The error of a winner, by its record's id."""
    return StoreError(f"a winner points to record {record}, {why}; {_HINT}")


@contextmanager
def readable(record: object) -> Iterator[None]:
    """Within the block, data that is not what it should be is that of an unsound record."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise unsound(record, f"it cannot be read ({type(error).__name__}: {error})") from error
