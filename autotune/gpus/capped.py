"""Holding a GPU to a cap: `autotune.gpus.cap_keeper` sets it, and takes it back whatever happens to this process."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from autotune.core.channel import LOST, start_module
from autotune.core.errors import AutotuneError, DeviceRefused
from autotune.gpus.cap import Cap
from autotune.gpus.present import bus_id

_ANSWER_S = 30.0
_END_S = 20.0


@contextmanager
def capped(cap: Cap, index: int | None) -> Iterator[None]:
    """Within the block the GPU with this index, as the driver counts them, is held to a cap; nothing without a cap.

    Raises:
        UsageError: the GPU has no such clock, or takes no such limit.
        DeviceRefused: there are no rights for it, another search holds the GPU, or it cannot be done.
    """
    if not cap or index is None:
        yield
        return
    place = bus_id(index)
    if place is None:
        raise DeviceRefused(f"the driver does not say where GPU {index} sits, so it cannot be held to {cap}")
    try:
        keeper, connection = start_module("autotune.gpus.cap_keeper", lasting=True)
    except OSError as error:
        raise AutotuneError(f"the process that holds the GPU to {cap} cannot be started: {error}") from error
    try:
        with closing(connection):
            try:
                connection.send((place, cap))
                answer = connection.recv() if connection.poll(_ANSWER_S) else EOFError("no answer")
            except LOST as error:
                answer = error
        if isinstance(answer, AutotuneError):
            raise answer
        if answer is not None:
            raise DeviceRefused(f"the process that was to hold the GPU to {cap} has ended: {answer}")
        yield
    finally:
        keeper.finish(_END_S)
