"""How long a database server is waited for, and how often it is asked again."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, Engine

from autotune.core.errors import DatabaseAway

Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """Limits, in seconds, of what may come between a worker and a database server.

    A worker that is frozen in a transaction is undone by the server after `idle_s`, which is less than the `lock_s`
    that the others wait for it. `statement_s` limits one statement, on the server; `answer_s` a whole transaction,
    here, should the server itself be frozen; `outage_s` how long a server that is gone, or locked, is asked again.
    """

    connect_s: float = 10.0
    lock_s: float = 30.0
    idle_s: float = 15.0
    statement_s: float = 45.0
    answer_s: float = 60.0
    outage_s: float = 120.0

    def connect_arguments(self) -> dict[str, int]:
        """What libpq is told. A peer that is gone is noticed after 10 s of silence and three probes, 5 s apart."""
        return {
            "connect_timeout": max(2, round(self.connect_s)), "keepalives": 1, "keepalives_idle": 10,
            "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": round(1000 * self.answer_s),
        }  # fmt: skip

    def settings(self) -> dict[str, str]:
        """What a session is set to, in milliseconds."""
        return {
            "lock_timeout": f"{round(1000 * self.lock_s)}",
            "idle_in_transaction_session_timeout": f"{round(1000 * self.idle_s)}",
            "statement_timeout": f"{round(1000 * self.statement_s)}",
        }


PATIENCE = Patience()

LOOKING_UP = Patience(statement_s=10.0, answer_s=15.0, outage_s=5.0)
"""Who asks for a kernel does not wait as long as a search that has hours of work to lose."""

OPTION = "autotune_patience"
"""The execution option of an engine that holds its `Patience`."""

_LONGEST_PAUSE_S = 5.0


def patience_of(engine: Engine) -> Patience:
    """The patience that an engine was made with."""
    found: Patience = engine.get_execution_options().get(OPTION, PATIENCE)
    return found


def persistent(engine: Engine, transaction: Callable[[], Result], limit_s: float | None = None) -> Result:
    """Run a transaction, again and again where the server went away over it, with growing pauses.

    The transaction must be one that may be run twice: the server may have committed it and not have said so.

    Raises:
        DatabaseAway: the server has stayed away for `limit_s` seconds, by default the engine's `outage_s`.
        StoreError: its refusal.
    """
    pause, began = 0.0, 0.0
    limit_s = patience_of(engine).outage_s if limit_s is None else limit_s
    while True:
        try:
            return transaction()
        except DatabaseAway as error:
            began = began or time.monotonic()
            if limit_s == 0:
                raise
            if time.monotonic() - began + pause > limit_s:
                raise DatabaseAway(
                    f"{error}; it has been so for {limit_s:.3g} s: run the command again later"
                ) from error
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE_S, max(0.1, 2 * pause))


@contextmanager
def answered(connection: Connection) -> Iterator[None]:
    """Cut a server's connection where it has not answered for `answer_s`, which ends the wait with an error."""
    driver = connection.connection.driver_connection
    if connection.dialect.name != "postgresql" or driver is None or not hasattr(driver, "fileno"):
        yield
        return
    line = socket.socket(fileno=os.dup(driver.fileno()))
    timer = threading.Timer(patience_of(connection.engine).answer_s, _cut, (line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.close()


def _cut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has just ended by itself
        line.shutdown(socket.SHUT_RDWR)
