"""How figures are written."""


def format_ms(ms: float) -> str:
    """Four significant digits."""
    return f"{ms:.4g}"


def clock(seconds: float) -> str:
    """`1:05`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_bytes(count: int) -> str:
    """`48 KiB`, or bytes where it is no whole number of KiB."""
    return f"{count // 1024} KiB" if count >= 1024 and count % 1024 == 0 else f"{count} B"
