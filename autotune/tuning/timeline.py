"""When what happened in a search: where its wall time goes, in its summary and its JSON."""

import threading
import time
from collections.abc import Mapping
from typing import Literal

Event = Literal["building", "built", "device", "references", "verdict", "searched", "timed", "examined"]

WORDS: Mapping[Event, str] = {
    "building": "first build begun",
    "built": "first build done",
    "device": "device open",
    "references": "references made",
    "verdict": "first verdict",
    "searched": "search over",
    "timed": "finalists timed",
    "examined": "winner examined",
}
"""What each event is called where people read it."""


class Timeline:
    """Seconds since `start` (of `time.monotonic`) of each event's first time. Any thread may mark one."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._at: dict[Event, float] = {}
        self._lock = threading.Lock()

    def mark(self, event: Event) -> None:
        """Note that an event happens now, unless it has happened before."""
        with self._lock:
            self._at.setdefault(event, time.monotonic() - self._start)

    def seconds(self) -> dict[Event, float]:
        """What has happened, the earliest first."""
        with self._lock:
            return dict(sorted(self._at.items(), key=lambda item: item[1]))
