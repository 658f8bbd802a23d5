"""What devices are called: by users `cuda`, `cuda:1`, `cpu`, `h200`, `cpu:h200`; in records `h200`, `cpu:h200`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from autotune.gpus.spec import DeviceSpec

DeviceKind = Literal["cuda", "cpu", "replay"]
_PREFIXES: Mapping[str, DeviceKind] = {"cpu": "cpu", "replay": "replay"}


@dataclass(frozen=True)
class DeviceName:
    """A device's name, taken apart; `str` puts it together.

    Attributes:
        gpu: the model whose times are measured, or estimated on `cpu`; None where the name leaves it open.
        index: of `cuda:1`, as the driver counts GPUs.
    """

    kind: DeviceKind
    gpu: str | None = None
    index: int = 0

    def __str__(self) -> str:
        if self.kind == "cuda":
            return self.gpu or (f"cuda:{self.index}" if self.index else "cuda")
        return self.kind if self.gpu is None else f"{self.kind}:{self.gpu}"


@cache
def parse_device(name: str) -> DeviceName:
    """The one reading of device names. What is neither `cuda…`, `cpu…` nor `replay…` names a GPU model."""
    here = re.fullmatch(r"cuda(?::(\d+))?", name)
    if here is not None:
        return DeviceName("cuda", index=int(here[1] or 0))
    first, _, gpu = name.partition(":")
    kind = _PREFIXES.get(first)
    return DeviceName("cuda", name) if kind is None else DeviceName(kind, gpu or None)


def gpu_of_record(device: str) -> str:
    """The model that a record's time is of, measured or estimated: `h200` for `h200` and for `cpu:h200`."""
    return parse_device(device).gpu or device


@dataclass(frozen=True)
class DeviceIdentity:
    """Which device a measurement belongs to. On `cpu` the spec is that of the GPU whose time is estimated."""

    kind: DeviceKind
    spec: DeviceSpec

    @property
    def name(self) -> str:
        """As in records: `h200` for the GPU itself, `cpu:h200` for the emulator with estimates for an H200."""
        return str(DeviceName(self.kind, self.spec.name))
