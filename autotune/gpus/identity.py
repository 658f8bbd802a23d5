"""What devices are called: by users `cuda`, `cuda:1`, `cpu`, `h200`, `cpu:h200`; in records `h200`, `cpu:h200`.

A GPU that was held to a clock or a power limit is another device, `h200@1200MHz+400W`: times under a limit never mix
with those without one.
"""

import re
from dataclasses import dataclass
from typing import Literal

from autotune.core.errors import UsageError
from autotune.gpus.cap import NO_CAP, Cap, parse_cap
from autotune.gpus.spec import DeviceSpec

TimeKind = Literal["measured", "estimated"]


@dataclass(frozen=True)
class DeviceType:
    """What there is to know of a kind of device where none is opened.

    Attributes:
        opener: `module:class` of its `DeviceOpener`; none where nothing runs on it.
        times: those that records of it may have. One that estimates runs the emulator's libraries, others cubins.
        dies: a failed launch ends what its process can do with it.
    """

    opener: str | None
    times: frozenset[TimeKind]
    dies: bool = False


DEVICES = {
    "cuda": DeviceType("autotune.devices.factory:CudaOpener", frozenset({"measured"}), dies=True),
    "cpu": DeviceType("autotune.devices.factory:CpuOpener", frozenset({"estimated"})),
    "replay": DeviceType(None, frozenset({"measured", "estimated"})),
}
"""The kinds of devices by what they are called: a new one is a row here, and its file in `autotune/devices`."""


@dataclass(frozen=True)
class DeviceName:
    """A device's name, taken apart; `str` puts it together.

    Attributes:
        gpu: the model whose times are measured, or estimated on `cpu`; None where the name leaves it open.
        index: of `cuda:1`, as the driver counts GPUs.
        cap: to what it was held while it was measured.
    """

    kind: str
    gpu: str | None = None
    index: int = 0
    cap: Cap = NO_CAP

    def __str__(self) -> str:
        return f"{self._uncapped}@{self.cap}" if self.cap else self._uncapped

    @property
    def _uncapped(self) -> str:
        if self.kind == "cuda":
            return self.gpu or (f"cuda:{self.index}" if self.index else "cuda")
        return self.kind if self.gpu is None else f"{self.kind}:{self.gpu}"


def require_name(device: object) -> None:
    """Raise UsageError for what is no text: no device's name."""
    if not isinstance(device, str):
        raise UsageError(
            f"device={device!r} is no device's name; write 'cuda', 'cuda:1', 'cpu', or a GPU's as in 'h200'"
        )


def parse_device(name: str) -> DeviceName:
    """The one reading of device names. What does not begin with a kind of `DEVICES` names a GPU model.

    Raises:
        UsageError: it is no text.
    """
    require_name(name)
    device, at, limits = name.rpartition("@")
    cap = parse_cap(limits) if at else NO_CAP
    if cap is None or not at:
        device, cap = name, NO_CAP
    here = re.fullmatch(r"cuda(?::(\d+))?", device)
    if here is not None:
        return DeviceName("cuda", index=int(here[1] or 0), cap=cap)
    first, _, gpu = device.partition(":")
    if first in DEVICES and first != "cuda":
        return DeviceName(first, gpu or None, cap=cap)
    return DeviceName("cuda", device, cap=cap)


def gpu_of_record(device: str) -> str:
    """The model that a record's time is of, measured or estimated: `h200` for `h200`, `cpu:h200` and `h200@400W`."""
    return parse_device(device).gpu or device


@dataclass(frozen=True)
class DeviceIdentity:
    """Which device a measurement belongs to. On `cpu` the spec is that of the GPU whose time is estimated.

    `cap`: to what we hold it while it is measured.
    """

    kind: str
    spec: DeviceSpec
    cap: Cap = NO_CAP

    @property
    def estimates(self) -> bool:
        """Whether its times are modelled, never measured."""
        return DEVICES[self.kind].times == {"estimated"}

    @property
    def name(self) -> str:
        """As in records: `h200` for the GPU itself, `cpu:h200` for the emulator with estimates for an H200."""
        return str(DeviceName(self.kind, self.spec.name, cap=self.cap))
