"""BLAS has one thread where others compute beside it, whatever the process had before, and has as many again after."""

import threading
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits

from autotune.core.blas import blas_on_one_thread
from autotune.ops.expected import expect, expectations
from tests.device_doubles import OP, PROBLEM


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_within_the_block_and_after_it() -> None:
    seen: list[set[int]] = []
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        with blas_on_one_thread():
            other = threading.Thread(target=lambda: seen.append(threads()))
            other.start()
            other.join()
        assert threads() == {2}
    assert seen == [{1}]


def test_who_leaves_last_gives_back() -> None:
    """Whichever of two that overlap that is."""
    with threadpool_limits(2, user_api="blas"):
        one, two = blas_on_one_thread(), blas_on_one_thread()
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        assert threads() == {1}
        two.__exit__(None, None, None)
        assert threads() == {2}


def test_references_are_made_so(monkeypatch: Any) -> None:
    seen: list[set[int]] = []
    reference = type(OP).reference

    def noting(self: Any, *arguments: Any) -> Any:
        seen.append(threads())
        return reference(self, *arguments)

    monkeypatch.setattr(type(OP), "reference", noting)
    with threadpool_limits(2, user_api="blas"):
        expect(OP, PROBLEM, seed=1)
        expectations(OP, PROBLEM, 1)
    assert seen
    assert all(number == {1} for number in seen)
