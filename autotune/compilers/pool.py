"""Builds that run ahead in parallel: compilers are processes of their own, so threads that wait for them suffice."""

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, TypeVar

from autotune.compilers.cache import BuildCache
from autotune.core.child import stop
from autotune.core.errors import BuildError
from autotune.core.threads import no_thread

Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")


class BuildRequest(Protocol[Result_co]):
    """Plain data that knows how to build itself (`CubinRequest`)."""

    def build(self, cache: BuildCache) -> Result_co:
        """Build, or raise CompileError (the source is refused) or BuildError (the machinery failed)."""


class BuildPool:
    """A pool of `jobs` builds at a time, default one a core. A context manager: leaving it cancels what is left.

    Compilers end with this process, even when it is killed.
    """

    def __init__(self, cache: BuildCache, jobs: int | None = None) -> None:
        self.jobs = jobs or os.cpu_count() or 1
        self._cache = cache
        self._executor = ThreadPoolExecutor(self.jobs, thread_name_prefix="build")
        self._threads: set[int] = set()
        self._closed = False

    def submit(self, request: BuildRequest[Result]) -> "Future[Result]":
        """Queue a build. The future's result is the build's; its exception is a CompileError or a BuildError.

        A future that has not started can be cancelled.

        Raises:
            BuildError: the pool is closed.
            AutotuneError: no more threads can be started.
        """
        if self._closed:
            raise BuildError("the build pool is closed")
        try:
            return self._executor.submit(self._run, request)
        except RuntimeError as error:
            if self._closed:
                raise BuildError("the build pool is closed") from error
            raise no_thread(error) from error

    def close(self) -> None:
        """Drop the queue, kill the running compilers, and wait for the threads."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        while self._threads:  # again and again: a build may be between two compilers
            stop(frozenset(self._threads))
            time.sleep(0.01)
        self._executor.shutdown(wait=True)

    def __enter__(self) -> "BuildPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, request: BuildRequest[Result]) -> Result:
        thread = threading.get_ident()
        self._threads.add(thread)
        try:
            if self._closed:
                raise BuildError("the build was cancelled")
            return request.build(self._cache)
        finally:
            self._threads.discard(thread)
