"""What a device can do: the limits that constraints, occupancy and estimates read."""

from dataclasses import asdict, dataclass
from typing import Any


def capability_of(arch: str) -> int:
    """The compute capability that code for an architecture needs: 90 for `sm_90` and `sm_90a`."""
    return int(arch.removeprefix("sm_").rstrip("af"))


@dataclass(frozen=True)
class DeviceSpec:
    """Limits of one GPU model. Sizes in bytes, rates per second as named, counts as the vendor publishes them.

    `device.<field>` in a template's expressions reads these.
    """

    name: str  # short lower-case name used on the command line: "h200"
    title: str  # as the driver reports it: "NVIDIA H200"
    arch: str  # what to compile for: "sm_90a"
    sm_count: int
    max_shared_memory: int  # dynamic + static a block may ask for
    shared_memory_per_sm: int
    l2_bytes: int
    memory_bytes: int
    clock_mhz: int  # boost
    bandwidth_gbs: float  # device memory, GB/s
    fp32_tflops: float
    tensor_tflops: float  # dense fp16 with fp32 accumulation
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int = 65536
    max_registers_per_thread: int = 255
    max_threads_per_block: int = 1024
    warp_size: int = 32
    reserved_shared_memory: int = 1024  # the runtime's own, per block (sm_80 and later)

    @property
    def compute_capability(self) -> int:
        """90 for sm_90a."""
        return capability_of(self.arch)

    def to_json(self) -> dict[str, Any]:
        """All fields, as stored with a device."""
        return asdict(self)
