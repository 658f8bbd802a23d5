"""A GPU of NVIDIA's management library whose state is a file, so that all processes of a test see one GPU."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from autotune.compilers.toolchain import find_gxx

BUS_ID = "0000:3B:00.0"
_NAMES = ("clock", "limit", "permitted", "mig", "power", "counter", "sets", "reserved")
_FORM = "<8IQ"


def build_library(folder: Path) -> Path:
    """`libnvidia-ml.so.1` in a folder that a process may have in its LD_LIBRARY_PATH."""
    path, source = folder / "libnvidia-ml.so.1", Path(__file__).with_name("fake_nvml.cpp")
    command = [str(find_gxx().path), "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@dataclass(frozen=True)
class FakeGpu:
    """A GPU of 700 W at 0000:3B:00.0, with clocks of 1200 to 1980 MHz and limits from 200 W."""

    file: Path

    def set(self, **values: int) -> None:
        """Change its state: clock (MHz, 0 not locked), limit and power (mW), permitted (2: limits of power are
        taken, and stay what they are), mig, counter."""
        state = {**self.state, **values}
        self.file.write_bytes(struct.pack(_FORM, *(state[name] for name in _NAMES), 0))

    @property
    def state(self) -> dict[str, int]:
        data = self.file.read_bytes() if self.file.exists() else b""
        if not data:
            return dict.fromkeys(_NAMES, 0) | {"limit": 700_000, "permitted": 1, "counter": 1, "power": 90_000}
        return dict(zip(_NAMES, struct.unpack(_FORM, data), strict=False))

    @property
    def held(self) -> tuple[int, int]:
        """The locked clock in MHz (0: none) and the limit of power in watts."""
        state = self.state
        return state["clock"], state["limit"] // 1000
