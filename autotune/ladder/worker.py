"""A worker process that several searches use one after the other: starting it and making references takes seconds."""

import threading

from autotune.devices.client import WorkerClient
from autotune.devices.messages import Message, Prepare, Reply
from autotune.devices.open import DeviceOpener


class SharedWorker(WorkerClient):
    """Stays alive when a search closes it; `end` closes it for good.

    It must be made, and first started, by the thread that runs the searches: a worker ends with the thread that
    started it, so one that a search's own thread had to restart is stopped with that search.
    """

    def __init__(self, opener: DeviceOpener) -> None:
        super().__init__(opener)
        self._owner = self._starter = threading.get_ident()
        self._ready: tuple[Prepare, int] | None = None
        self._asked = False

    def prepare(self, message: Prepare) -> None:
        """Have inputs and references made, unless this very process has made them."""
        self._asked = True
        try:
            self.start()
            if self._ready != (message, self.starts):
                super().prepare(message)
                self._ready = message, self.starts
        finally:
            self._asked = False

    def ask(self, message: Message, limit_s: float) -> Reply:
        """As `WorkerClient.ask`."""
        self._asked = True
        try:
            return super().ask(message, limit_s)
        finally:
            self._asked = False

    def kill(self, *, for_good: bool = False) -> None:
        """Kill the worker; at the end of a search only if it is still busy."""
        if not for_good or self._asked:
            super().kill()

    def close(self) -> None:
        """The end of a search: stop only what would not outlive its thread."""
        if self._starter != self._owner:
            self.stop()

    def end(self) -> None:
        """Stop, and drop what was kept."""
        super().close()

    def _spawn(self) -> None:
        self._starter = threading.get_ident()
        super()._spawn()
