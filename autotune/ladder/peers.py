"""What others need for the same problems, measured in the run of the climb: PyTorch's attention, and cuBLAS.

PyTorch is no dependency: it is imported by a process of its own (`autotune.ladder.torch_peers`), which is started with
the climb, so that its import takes no time of its own, and measures once the climb is done with the GPU.
"""

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

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
        """Plain data."""
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
        command = [sys.executable, "-m", "autotune.ladder.torch_peers"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield lambda: self._answer(process, _request(self.gpu_index, asked, parts))
            finally:
                process.kill()

    def _answer(self, process: "subprocess.Popen[str]", request: dict[str, Any]) -> Peers:
        watch = threading.Timer(self.limit_s, process.kill)
        watch.start()
        try:
            said, complaints = process.communicate(json.dumps(request) + "\n")
        finally:
            watch.cancel()
        return _read(said, complaints)


def _request(gpu_index: int, asked: Problem, parts: Sequence[Problem]) -> dict[str, Any]:
    products = {part.key: part.to_json() for part in parts if part.op == "matmul"}
    return {"gpu": gpu_index, "attention": asked.to_json(), "products": products}


def _read(said: str, complaints: str) -> Peers:
    try:
        data = json.loads(_last_line(said))
    except ValueError:
        return Peers(missing=f"PyTorch gave no answer {_last_line(complaints)[:200]}".strip())
    return Peers(data["attention"], data["products"], data["versions"], data.get("missing") or "")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
