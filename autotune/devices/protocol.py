"""The one protocol that cuda, cpu and replay devices follow. Lives inside the worker process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.core.measurement import Energy, Timing
from autotune.core.plan import Buffer, LaunchPlan
from autotune.families.source import KernelSource
from autotune.gpus.identity import DeviceIdentity


@dataclass(frozen=True)
class TimingBudget:
    """How long to time. Repeats go on until the median is stable or a limit is reached.

    `give_up_above_ms`: stop after a few repeats when even the fastest is slower than this (it cannot win).
    """

    min_repeats: int = 7
    max_repeats: int = 200
    max_seconds: float = 0.5
    warmup: int = 2
    relative_error: float = 0.0015  # stop once the median's standard error over the median is below this
    give_up_above_ms: float | None = None


class Program(Protocol):
    """A loaded binary. Opaque to the caller; `close` unloads it."""

    def close(self) -> None:
        """Unload."""


class Device(Protocol):
    """Buffers are named; a plan's arguments refer to them by name."""

    identity: DeviceIdentity

    def environment(self) -> Mapping[str, str]:
        """Driver, device title, host: what a record needs to be repeated."""

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        """Make exactly these buffers exist; those unchanged in name, dtype and size keep their content."""

    def upload(self, name: str, data: NDArray[Any]) -> None:
        """Copy a 1-D array of the buffer's element type and length into it."""

    def poison(self, name: str, byte: int = 0xFF) -> None:
        """Fill with one byte: with 0xFF, NaN in every floating dtype, or with another one."""

    def download(self, name: str) -> NDArray[Any]:
        """The buffer's content as a 1-D array of its element type (`autotune.core.dtypes.numpy_dtype`)."""

    def equals(self, name: str, data: NDArray[Any]) -> bool:
        """Whether the buffer holds exactly the bytes of a contiguous 1-D array of its element type and length."""

    def load(self, artifact: Artifact, plan: LaunchPlan) -> Program:
        """Load a binary and prepare its kernels (shared-memory limits).

        Raises:
            LaunchError: the device refuses it; for shared memory the message says asked and available.
        """

    def run(self, program: Program, plan: LaunchPlan) -> float | None:
        """All steps of the plan once, then synchronise; the device's milliseconds, if they mean anything.

        Raises:
            LaunchError: a step failed.
        """

    def time(self, program: Program, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        """Median time of the whole plan (all steps), L2 flushed before each repeat.

        Raises:
            LaunchError: a step failed.
        """

    def close(self) -> None:
        """Free everything."""


@runtime_checkable
class Metered(Protocol):
    """A device that may tell what energy its kernels take."""

    def why_no_energy(self) -> str:
        """Why it cannot; empty where it can."""

    def idle_power_w(self) -> float:
        """Watts that it draws with nothing to do; takes a second.

        Raises:
            DeviceRefused: it does not tell.
        """

    def energy(self, program: Program, plan: LaunchPlan, seconds: float) -> Energy:
        """What one call of the whole plan takes, from at least so many seconds of repeats back to back (warm caches).

        Raises:
            LaunchError: a step failed.
            DeviceRefused: it does not tell.
        """


@runtime_checkable
class Comparing(Protocol):
    """A device on which outputs are compared in far less time than they take to be downloaded.

    Its `run` runs what it has built, too, over any of its buffers.
    """

    def build(self, source: KernelSource) -> Artifact:
        """Kernels of this package for the device, from the cache or built now; in whatever thread.

        Raises:
            BuildError: there is no compiler, or it could not run (CompileError: it refuses the source).
        """

    def free_bytes(self) -> int:
        """How much memory nobody has taken yet."""
