"""A thread that renews the claims of a search, however long the search itself is busy with something else."""

import threading
from contextlib import suppress

from autotune.core.errors import StoreError
from autotune.core.threads import start_thread
from autotune.store import Owner, Store
from autotune.store.claims import BEATS

_END_S = 2.0


class Heartbeat:
    """Renews an owner's claims from the first one on until it is stopped.

    A process that is frozen or dead renews nothing: that is how others know. Neither does a database that is away;
    whoever needs it more says so.
    """

    def __init__(self, store: Store, owner: Owner, lease_s: float) -> None:
        self._store, self._owner, self._lease_s = store, owner, lease_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless that is done."""
        if self._thread is None:
            self._over = threading.Event()
            self._thread = start_thread("heartbeat", self._beat)

    def stop(self) -> None:
        """End, after a beat that is under way; one that waits for a database is not waited for."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_END_S)
            self._thread = None

    def _beat(self) -> None:
        over = self._over
        while not over.wait(self._lease_s / BEATS):
            with suppress(StoreError):
                self._store.heartbeat(self._owner, self._lease_s)
