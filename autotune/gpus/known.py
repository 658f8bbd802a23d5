"""Known GPU models with their published figures.

Limits by compute capability (shared memory, threads and blocks an SM) are those of the CUDA C++ Programming Guide's
table of technical specifications. Clocks, bandwidth and rates are from each model's datasheet or whitepaper, which
`autotune.gpus.sources` names; tensor rates are dense fp16 with fp32 accumulation.
"""

import difflib
from collections.abc import Iterable

from autotune.core.errors import UsageError
from autotune.gpus.sources import PUBLISHED
from autotune.gpus.spec import DeviceSpec

_KB = 1024
_MB = 1024 * _KB
_GB = 1024 * _MB


def _model(  # noqa: PLR0913, PLR0917 - a row of the table below
    name: str,
    title: str,
    arch: str,
    sms: int,
    l2_mb: float,
    memory_gb: int,
    clock_mhz: int,
    bandwidth_gbs: float,
    fp32_tflops: float,
    tensor_tflops: float,
) -> DeviceSpec:
    smem_kb, threads, blocks = _PER_SM[arch]
    reserved = 0 if arch == "sm_75" else _KB
    return DeviceSpec(
        name=name, title=title, arch=arch, sm_count=sms,
        max_shared_memory=smem_kb * _KB - reserved, shared_memory_per_sm=smem_kb * _KB,
        l2_bytes=int(l2_mb * _MB), memory_bytes=memory_gb * _GB, clock_mhz=clock_mhz, bandwidth_gbs=bandwidth_gbs,
        fp32_tflops=fp32_tflops, tensor_tflops=tensor_tflops, max_threads_per_sm=threads, max_blocks_per_sm=blocks,
        reserved_shared_memory=reserved,
    )  # fmt: skip


# Shared memory (KB), threads and blocks an SM. Programming Guide, technical specifications by compute capability.
_PER_SM = {
    "sm_75": (64, 1024, 16),
    "sm_80": (164, 2048, 32),
    "sm_86": (100, 1536, 16),
    "sm_89": (100, 1536, 24),
    "sm_90a": (228, 2048, 32),
    "sm_100a": (228, 2048, 32),
    "sm_120": (100, 1536, 24),
}

_GPUS = (
    _model("t4", "Tesla T4", "sm_75", 40, 4, 16, 1590, 320, 8.1, 65),
    _model("a100-40gb", "NVIDIA A100-SXM4-40GB", "sm_80", 108, 40, 40, 1410, 1555, 19.5, 312),
    _model("a100", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 40, 80, 1410, 2039, 19.5, 312),
    _model("a10", "NVIDIA A10", "sm_86", 72, 6, 24, 1695, 600, 31.2, 125),
    _model("l4", "NVIDIA L4", "sm_89", 58, 48, 24, 2040, 300, 30.3, 121),
    _model("rtx3090", "NVIDIA GeForce RTX 3090", "sm_86", 82, 6, 24, 1695, 936, 35.6, 71),
    _model("rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 128, 72, 24, 2520, 1008, 82.6, 165.2),
    _model("h100", "NVIDIA H100 80GB HBM3", "sm_90a", 132, 50, 80, 1980, 3350, 66.9, 989.4),
    _model("h200", "NVIDIA H200", "sm_90a", 132, 60, 141, 1980, 4800, 66.9, 989.4),
    _model("b200", "NVIDIA B200", "sm_100a", 148, 126.5, 180, 1965, 7700, 75, 2250),
    _model("rtx5090", "NVIDIA GeForce RTX 5090", "sm_120", 170, 96, 32, 2407, 1792, 104.8, 209.5),
)

_TOO_OLD = ("v100", "titanv", "p100", "p40", "gtx10", "titanxp", "k80")

_BRANDS = ("nvidia", "geforce", "tesla", "quadro")

# Other titles of the same model with the same figures. Models with fewer SMs, less bandwidth or other clocks
# (H100 PCIe, A100 PCIe, RTX 4090 D, laptops, MIG slices) are deliberately no match.
_ALSO_TITLED = {"h100": ("NVIDIA H100 SXM5 80GB",), "t4": ("NVIDIA T4",)}


def gpus() -> tuple[DeviceSpec, ...]:
    """All known models, oldest first."""
    return _GPUS


def source_of(spec: DeviceSpec) -> str:
    """Where a known model's figures are published; empty for one that is not in the table."""
    published = PUBLISHED.get(spec.name)
    return published.source if published else ""


LIMITS_SOURCE = "CUDA Programming Guide, compute capabilities, table of technical specifications"
"""Of shared memory, registers, threads and blocks an SM of all models."""


def gpu(name: str) -> DeviceSpec:
    """The model called `name` ("h200", "NVIDIA H200", "RTX 4090" and the driver's title all work).

    Raises:
        UsageError: it is not known, or too old; the message names the closest and all that are.
    """
    wanted = _bare(name)
    for spec in _GPUS:
        if wanted in {_bare(spec.name), *map(_bare, titles(spec))}:
            return spec
    known = [spec.name for spec in _GPUS]
    if wanted.startswith(_TOO_OLD):
        raise UsageError(
            f"{name!r} is too old: CUDA 13 compiles for compute capability 7.5 and later; {', '.join(known)}"
        )
    close = difflib.get_close_matches(wanted, known, n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(f"unknown GPU {name!r}; {hint}known: {', '.join(known)}")


def by_title(title: str) -> DeviceSpec | None:
    """The model that a driver calls `title`; None if it is none of the known ones."""
    return next((spec for spec in _GPUS if title.strip() in titles(spec)), None)


def titles(spec: DeviceSpec) -> Iterable[str]:
    """What drivers call the model."""
    return (spec.title, *_ALSO_TITLED.get(spec.name, ()))


def short_name(title: str) -> str:
    """A command-line name for a model that is not in the table: "NVIDIA H100 PCIe" → "h100-pcie"."""
    return "-".join(_telling(title.lower().replace("/", " "))) or "gpu"


def _telling(title: str) -> list[str]:
    return [word for word in title.split() if word not in _BRANDS]


def _bare(name: str) -> str:
    """Letters and digits without the words that many models share."""
    words = _telling(name.lower().replace("-", " ").replace("_", " ").replace("/", " "))
    return "".join(character for character in "".join(words) if character.isalnum())
