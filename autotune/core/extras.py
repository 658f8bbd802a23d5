"""How to install what is optional, as messages say it."""

DISTRIBUTION = "autotune-kernels"
"""The name to install by; what is imported, and the command, are `autotune`."""


def install(extra: str) -> str:
    """`pip install 'autotune-kernels[plot]'`, and the same in a checkout."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
