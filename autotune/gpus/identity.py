"""Which device a measurement belongs to."""

from dataclasses import dataclass
from typing import Literal

from autotune.gpus.spec import DeviceSpec

DeviceKind = Literal["cuda", "cpu", "replay"]


@dataclass(frozen=True)
class DeviceIdentity:
    """A device as records name it. On `cpu` the spec is that of the target GPU whose time is estimated."""

    kind: DeviceKind
    spec: DeviceSpec

    @property
    def name(self) -> str:
        """`h200` for the GPU itself; `cpu:h200` for the emulator with estimates for an H200."""
        return self.spec.name if self.kind == "cuda" else f"{self.kind}:{self.spec.name}"
