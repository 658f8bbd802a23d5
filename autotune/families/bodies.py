"""Rendering the bodies of templates: those that ship here, a user's own in a process of limited memory and time.

A body is a program: loops in loops, texts that double. Nothing tells beforehand what it takes, so it is tried where it
can be ended. `python -m autotune.families.bodies_main` is that process, started with the first body that needs it.
"""

import atexit
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateSyntaxError
from jinja2.exceptions import SecurityError, UndefinedError

from autotune.core.blas import ONE_THREAD
from autotune.core.channel import LOST, Companion
from autotune.core.child import signal_name
from autotune.core.confinement import part_of_environment
from autotune.core.errors import AutotuneError, TemplateError
from autotune.core.resources import resource_root
from autotune.families.expressions import CUDA_TEXT

LIMIT_S = 20.0
"""Seconds that rendering one body may take: it takes one or two thousandths."""

LIMIT_BYTES = 2**29
"""Memory that it may take."""

LONGEST = 2**22
"""Characters of a rendered body."""


def rendered(path: Path, before: int, body: str, namespace: Mapping[str, Any]) -> str:
    """A body with these names.

    Args:
        path: of the template, for messages.
        before: lines of the file before the body.
        body: the text.
        namespace: plain values.

    Raises:
        TemplateError: it has a syntax error, uses an unknown name, fails, leaves the sandbox, or takes too long.
        AutotuneError: the process that renders cannot be started, or is killed.
    """
    if is_shipped(path):
        return render_here(path, before, body, namespace)
    return _RENDERER.render(path, before, body, namespace)


def is_shipped(path: Path) -> bool:
    """Whether a template is part of the program."""
    return path.is_relative_to(resource_root("templates"))


def render_here(path: Path, before: int, body: str, namespace: Mapping[str, Any]) -> str:
    """`rendered` in this process."""
    try:
        return _compiled(path, before, body).render(namespace)
    except TemplateError:
        raise
    except UndefinedError as error:
        raise TemplateError(f"{path}: {error.message}; known: {', '.join(sorted(namespace))}") from error
    except SecurityError as error:
        raise TemplateError(f"{path}: not allowed: {error.message}") from error
    except MemoryError:
        raise
    except Exception as error:  # whatever the template's own code raises
        raise TemplateError(f"{path}: rendering failed: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=64)
def _compiled(path: Path, before: int, body: str) -> JinjaTemplate:
    try:
        return CUDA_TEXT.from_string(body)
    except TemplateSyntaxError as error:
        raise TemplateError(f"{path}: line {before + error.lineno}: {error.message}") from error


class _Renderer:
    """The process, one for all templates; used by any number of threads, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._companion = Companion("autotune.families.bodies_main")

    def render(self, path: Path, before: int, body: str, namespace: Mapping[str, Any]) -> str:
        with self._lock:
            for attempt in range(2):  # one that was killed from outside is no verdict on a template
                try:
                    return self._ask(path, before, body, namespace)
                except LOST as error:
                    how = self._end()
                    if how not in {signal.SIGKILL, signal.SIGTERM}:
                        raise TemplateError(f"{path}: rendering tore its process down ({_name(how)})") from error
                    if attempt:
                        raise AutotuneError(
                            f"the process that renders {path} was killed by {_name(how)}, twice, from outside or for "
                            "lack of memory"
                        ) from error
            raise AssertionError("the second attempt returns or raises")

    def _ask(self, path: Path, before: int, body: str, namespace: Mapping[str, Any]) -> str:
        connection = self._running()
        connection.send((path, before, body, dict(namespace)))
        if not connection.poll(LIMIT_S):
            self._end()
            raise TemplateError(
                f"{path}: rendering took longer than the limit of {LIMIT_S:g} s: does the template loop for ever?"
            )
        answer = connection.recv()
        if isinstance(answer, AutotuneError):
            raise answer
        return str(answer)

    def _running(self) -> Connection:
        if self._companion.connection is not None:
            return self._companion.connection
        try:
            return self._companion.start(environment={**ONE_THREAD, **part_of_environment()}, stderr=subprocess.DEVNULL)
        except OSError as error:
            raise AutotuneError(f"the process that renders templates cannot be started: {error}") from error

    def _end(self) -> int | None:
        """End the process; gives the number of the signal that had ended it, if one had."""
        process = self._companion.process
        status = None if process is None else process.wait(0.5)
        self.close()
        return -status if status is not None and status < 0 else None

    def forget(self) -> None:
        """Leave the process to whom it belongs."""
        self._lock, self._companion = threading.Lock(), Companion("autotune.families.bodies_main")

    def close(self) -> None:
        self._companion.close()


def _name(number: int | None) -> str:
    return "it ended by itself" if number is None else signal_name(-number)


_RENDERER = _Renderer()


def _forget() -> None:
    """What was forked off has no part in its parent's process."""
    _RENDERER.forget()


os.register_at_fork(after_in_child=_forget)
atexit.register(_RENDERER.close)
