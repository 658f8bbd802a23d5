"""What others need for the same problems, measured in the run of the climb: PyTorch's attention, and cuBLAS.

PyTorch is no dependency: it is imported by a process of its own (`autotune.ladder.torch_peers`), which is started with
the climb, so that its import takes no time of its own, and measures once the climb is done with the GPU.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Any

from autotune.core.channel import LOST, start_module
from autotune.core.errors import UsageError
from autotune.core.problem import Problem

LIMIT_S = 120.0
"""Seconds that the other process may take to measure."""


@dataclass(frozen=True)
class Peers:
    """Milliseconds by name: of attention, and of each product by its problem's key; `missing` says why none."""

    attention: Mapping[str, float] = field(default_factory=dict)
    products: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "attention": dict(self.attention),
            "products": {key: dict(times) for key, times in self.products.items()},
            "versions": dict(self.versions),
            "missing": self.missing or None,
        }


Answer = Callable[[], Peers]
Ask = Callable[[Problem, Sequence[Problem]], AbstractContextManager[Answer]]
"""Gets ready to measure attention and the problems of its parts; what it gives measures them."""


@contextmanager
def no_peers(asked: Problem, parts: Sequence[Problem]) -> Iterator[Answer]:  # noqa: ARG001 - an `Ask`
    """Nobody is asked."""
    yield Peers


def choose_peers(wanted: bool | None, gpu_index: int | None) -> Ask:
    """Whom to ask: PyTorch where it is installed and times are measured, unless told otherwise.

    Args:
        wanted: what the user says; None: if possible.
        gpu_index: the GPU; None: times are estimates.

    Raises:
        UsageError: peers are wanted and cannot be had.
    """
    if wanted is False:
        return no_peers
    why = "times are estimates here" if gpu_index is None else "" if has_torch() else "PyTorch is not installed"
    if not why:
        assert gpu_index is not None
        return TorchPeers(gpu_index)
    if wanted:
        raise UsageError(f"--peers: there is nobody to measure, {why}")
    return no_peers


def has_torch() -> bool:
    """Whether PyTorch is installed; it is not imported."""
    return importlib.util.find_spec("torch") is not None


@dataclass(frozen=True)
class TorchPeers:
    """Asks PyTorch on the GPU with this index."""

    gpu_index: int
    limit_s: float = LIMIT_S

    @contextmanager
    def __call__(self, asked: Problem, parts: Sequence[Problem]) -> Iterator[Answer]:
        """Start the other process; end it in any case."""
        with tempfile.TemporaryFile(prefix="autotune-peers-") as log:
            try:
                process, connection = start_module("autotune.ladder.torch_peers", stderr=log)
            except OSError as error:
                why = f"PyTorch's process cannot be started: {error}"
                yield lambda: Peers(missing=why)
                return
            try:
                yield lambda: self._answer(connection, log, _request(self.gpu_index, asked, parts))
            finally:
                process.close()
                connection.close()

    def _answer(self, connection: Connection, log: IO[bytes], request: dict[str, Any]) -> Peers:
        try:
            connection.send(request)
            if connection.poll(self.limit_s):
                return Peers(**connection.recv())
        except LOST:
            pass
        log.seek(0)
        said = _last_line(log.read().decode(errors="replace"))[:200]
        return Peers(missing=f"PyTorch gave no answer {said}".strip())


def _request(gpu_index: int, asked: Problem, parts: Sequence[Problem]) -> dict[str, Any]:
    products = {part.key: part.to_json() for part in parts if part.op == "matmul"}
    return {"gpu": gpu_index, "attention": asked.to_json(), "products": products}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
