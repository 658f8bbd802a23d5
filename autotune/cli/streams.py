"""Output on terminals and pipes whose encoding lacks some of the characters that are printed."""

import codecs
import sys
import unicodedata
from collections.abc import Mapping
from io import TextIOWrapper

_PLAIN: Mapping[str, str] = {
    "…": "...", "·": "*", "×": "x", "−": "-", "–": "-", "—": "-", "→": "->", "≤": "<=", "≥": ">=", "≈": "~", "±": "+-",
    "∘": "o", "²": "^2", "³": "^3", "µ": "u", "“": '"', "”": '"', "‘": "'", "’": "'", "•": "*", "⁻": "^-",
    "─": "-", "│": "|", "━": "-", "┃": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "█": "#", "⠋": "*",
}  # fmt: skip


def degrade_output() -> None:
    """Print what stdout and stderr cannot encode in characters that they can, in place of ending with an error."""
    codecs.register_error("autotune.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in {"strict", "backslashreplace", "surrogateescape"}:
            stream.reconfigure(errors="autotune.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """An error handler of `codecs`: a spelling in ASCII, a letter without its accent, else a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character) or _bare(character) for character in text), error.end


def _bare(character: str) -> str:
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"
