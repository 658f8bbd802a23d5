"""What the engine and the worker process say to each other. Plain, picklable data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autotune.compilers.artifact import Artifact
from autotune.core.errors import AutotuneError
from autotune.core.measurement import Energy, Timing, Wrong
from autotune.core.plan import LaunchPlan
from autotune.core.problem import Problem
from autotune.devices.factory import DeviceOpener
from autotune.devices.measure import Verdict
from autotune.devices.protocol import TimingBudget
from autotune.devices.twin import GAPS, Placement
from autotune.gpus.identity import DeviceIdentity
from autotune.ops.op import Op


class OpSource(Protocol):
    """Names an op in a form that another process can resolve (`autotune.families.op_ref.OpRef`)."""

    def resolve(self) -> Op:
        """The op."""


@dataclass(frozen=True)
class Prepare:
    """Get ready for a problem: make its inputs and references."""

    op: OpSource
    problem: Problem
    seed: int


@dataclass(frozen=True)
class Open:
    """The first message: which device to open, and what to make beside that, for a `Prepare` that follows."""

    opener: DeviceOpener
    ahead: Prepare | None = None


@dataclass(frozen=True)
class Evaluate:
    """Verify a candidate, and time it when there is a budget.

    `deterministic`: it is wrong, too, where one more run gives other bits; the emulator's runs differ in their order.
    `placements`: how tensors lie in the runs after the first; `far`: one more on the emulator, beyond 2^31 elements.
    """

    artifact: Artifact
    plan: LaunchPlan
    budget: TimingBudget | None
    deterministic: bool = False
    placements: tuple[Placement, ...] = (GAPS,)
    far: bool = False


@dataclass(frozen=True)
class Retime:
    """Time verified candidates in turn."""

    programs: tuple[tuple[Artifact, LaunchPlan], ...]
    rounds: int


@dataclass(frozen=True)
class Meter:
    """Measure what energy verified candidates take, in turn, `rounds` times each for so many seconds."""

    programs: tuple[tuple[Artifact, LaunchPlan], ...]
    rounds: int
    seconds: float


Message = Prepare | Evaluate | Retime | Meter


@dataclass(frozen=True)
class Opened:
    """The device is open: which it is, what a record needs to say about it, and why no energy is measured, if so."""

    identity: DeviceIdentity
    environment: Mapping[str, str]
    no_energy: str = ""


@dataclass(frozen=True)
class Prepared:
    """Answer to `Prepare`."""


@dataclass(frozen=True)
class Evaluated:
    """Answer to `Evaluate`. After `poisoned` the device cannot be used again in that process."""

    verdict: Verdict
    device_seconds: float
    poisoned: bool


@dataclass(frozen=True)
class Retimed:
    """Answer to `Retime`, in its order."""

    timings: tuple[Timing | Wrong | None, ...]


@dataclass(frozen=True)
class Metering:
    """Answer to `Meter`, in its order."""

    energies: tuple[Energy | None, ...]


@dataclass(frozen=True)
class Failed:
    """Nobody's kernel is to blame: the device is missing, the reference cannot be computed."""

    error: AutotuneError


Reply = Opened | Prepared | Evaluated | Retimed | Metering | Failed
