"""How figures and texts are written, wherever people read them."""

import re

from autotune.core.values import Value

# Controls but for the tab and the line feed, marks that turn the direction of what follows, lone surrogates.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with what a terminal would obey, or not show, written as `\\x1b`."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def format_bytes(count: float) -> str:
    """`512 B`, `1.5 KiB`, `20 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def format_ms(ms: float | None) -> str:
    """Milliseconds with four significant digits; nothing where there is no time."""
    return "" if ms is None else f"{ms:.4g}"


def format_expected(ms: float | None, sure: str) -> str:
    """What to expect of a problem whose time is not known, and how sure that is; empty where nobody can say."""
    return "" if ms is None else f"{format_ms(ms)} ms expected ({sure})"


def plain(value: Value) -> str:
    """A field's value as it is written in keys: `1` and `0` for truth values."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def clock(seconds: float) -> str:
    """`1:05`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(count: int, thing: str) -> str:
    """`1 trial`, `2 trials`, `1,234 trials`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def nearest_round(length: int) -> int:
    """The nearest number of three binary digits and zeros."""
    step = 1 << max(0, length.bit_length() - 3)
    return max(1, (length + step // 2) // step * step)
