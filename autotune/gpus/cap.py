"""Limits that a GPU is held to while it is measured: a locked clock, a lower power limit."""

import re
from dataclasses import dataclass

_WRITTEN = re.compile(r"(?:(?P<clock>[1-9]\d{0,5})MHz)?(?:(?:^|(?<=z)\+)(?P<power>[1-9]\d{0,5})W)?")


@dataclass(frozen=True)
class Cap:
    """What was limited; None: nothing was. As text `1200MHz`, `400W`, `1200MHz+400W`, empty without a limit."""

    clock_mhz: int | None = None
    power_w: int | None = None

    def __bool__(self) -> bool:
        return self != NO_CAP

    def __str__(self) -> str:
        parts = (f"{self.clock_mhz}MHz" if self.clock_mhz else "", f"{self.power_w}W" if self.power_w else "")
        return "+".join(filter(None, parts))


NO_CAP = Cap()


def parse_cap(text: str) -> Cap | None:
    """A cap from its text; None for a text that is none."""
    found = _WRITTEN.fullmatch(text)
    if found is None or not text:
        return None
    return Cap(*(None if part is None else int(part) for part in (found["clock"], found["power"])))
