"""What turns candidates into measurements: the pipeline of builds and worker, or a recorded space."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.core.candidate import Candidate
from autotune.core.measurement import Energy, Measurement, Timing, Wrong

RETIME_ROUNDS = 3
"""How often each finalist is timed once more, all in turn."""


@dataclass(frozen=True)
class Finished:
    """A candidate that has been evaluated."""

    candidate: Candidate
    source_hash: str
    measurement: Measurement


@dataclass(frozen=True)
class Load:
    """What an evaluator is doing, for the display. Seconds are totals since its start."""

    building: int = 0
    waiting: int = 0  # built, not yet on the device
    build_seconds: float = 0.0
    device_seconds: float = 0.0
    queued: int = 0  # builds that wait for one of the compilers


Order = Callable[[Sequence[Candidate]], Sequence[Candidate] | None]
"""Puts the most promising of candidates first; None where nothing is known of them."""


class Evaluator(Protocol):
    """Evaluates candidates, several at a time, in whatever order they get ready. Used by one thread."""

    @property
    def capacity(self) -> int:
        """How many candidates to have under way so that neither compilers nor device wait."""

    def submit(self, candidate: Candidate) -> None:
        """Begin to evaluate a candidate."""

    def poll(self, timeout_s: float) -> Sequence[Finished]:
        """What has finished; waits up to `timeout_s` seconds for the first.

        Raises:
            AutotuneError: the machinery failed, which is no candidate's fault.
        """

    def reconsider(self, order: Order) -> Sequence[Candidate]:
        """Of what is built and waits for the device, measure the most promising first.

        Where more wait than the device needs, the least promising are forgotten; returns those.
        """

    def note_best(self, ms: float) -> None:
        """The best time so far: candidates that are clearly slower need not be timed to the end."""

    def note_energy(self, ms: float, energy: Energy) -> None:
        """The figures of a candidate whose energy is known: others that cannot win beside it need not be measured."""

    def load(self) -> Load:
        """What is going on."""

    def retime(self, candidates: Sequence[Candidate]) -> Sequence[Timing | Wrong | None]:
        """Time candidates once more, all in one run, interleaved. Nothing else may be under way.

        None where one could not be timed, `Wrong` where its results are.
        """

    def meter(self, candidates: Sequence[Candidate], rounds: int) -> Sequence[Energy | None]:
        """Measure the energy of right candidates, all in one run, interleaved. Nothing else may be under way."""

    def drop(self) -> None:
        """Forget the candidates under way; stop their builds and their kernels."""

    def close(self) -> None:
        """Stop everything."""
