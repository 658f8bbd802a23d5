"""What a build yields."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class KernelReport:
    """One kernel in the compiler's resource report. Bytes, except registers (a thread)."""

    kernel: str
    registers: int
    spill_bytes: int  # stores + loads
    static_smem: int
    stack_bytes: int = 0
    loss: str = ""  # what ptxas could not do as the code says: wgmma one after the other, setmaxnreg ignored


@dataclass(frozen=True)
class Artifact:
    """A built binary in the cache, with its source beside it."""

    kind: Literal["cubin", "emulator"]
    path: Path
    source_path: Path
    key: str  # cache key: source, includes, flags, compiler, arch
    binary_hash: str  # identical binaries are measured once
    kernels: tuple[KernelReport, ...]
    compiler: str  # "nvcc 13.0.88", "g++ 12.2.0"
    seconds: float
    cached: bool
