"""Signals that end a search, sent to this very process."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from autotune.tuning.interrupt import ENDING, end_as_ctrl_c, interruptible


@dataclass
class Search:
    stop: bool = False


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("second", ENDING)
@pytest.mark.parametrize("first", ENDING)
def test_the_first_asks_and_the_second_insists(first: signal.Signals, second: signal.Signals) -> None:
    search, before = Search(), [signal.getsignal(number) for number in ENDING]
    with interruptible(search):
        signal.raise_signal(first)
        assert search.stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(second)
    assert [signal.getsignal(number) for number in ENDING] == before


def test_what_nohup_ignores_stays_ignored() -> None:
    search = Search()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible(search):
        signal.raise_signal(signal.SIGHUP)
        assert not search.stop
    end_as_ctrl_c()
    signal.raise_signal(signal.SIGHUP)


@pytest.mark.parametrize("number", ENDING)
def test_elsewhere_they_are_what_ctrl_c_is(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    end_as_ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_other_threads_change_nothing() -> None:
    before = [signal.getsignal(number) for number in ENDING]
    seen: list[object] = []

    def search() -> None:
        with interruptible(Search()):
            seen.extend(signal.getsignal(number) for number in ENDING)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert seen == before
