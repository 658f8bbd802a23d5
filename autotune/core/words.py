"""How figures are written."""


def format_ms(ms: float) -> str:
    """Four significant digits."""
    return f"{ms:.4g}"


def clock(seconds: float) -> str:
    """`1:05`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(count: int, thing: str) -> str:
    """`1 trial`, `2 trials`, `1,234 trials`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
