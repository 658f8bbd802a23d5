"""How figures are written, wherever people read them."""

from autotune.core.values import Value


def format_ms(ms: float | None) -> str:
    """Milliseconds with four significant digits; nothing where there is no time."""
    return "" if ms is None else f"{ms:.4g}"


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
