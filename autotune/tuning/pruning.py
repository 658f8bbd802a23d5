"""Candidates whose estimate is so far behind the best that the emulator need not run them."""

import re
from pathlib import Path

from autotune.core.errors import BuildError
from autotune.estimate.sass import read_code
from autotune.families.source import KernelSource
from autotune.gpus.spec import DeviceSpec

_PRODUCTS = re.compile(r"mma(?![a-z])")
_FASTER = ("tensor", "half product")


def least_ms(flops: float, source: KernelSource, cubin: Path, spec: DeviceSpec) -> float:
    """What `flops` operations take at the least, if all of the time went into them: 0 where fp32 is not the limit.

    That is known of code that neither uses tensor cores nor multiplies pairs of halves. Instructions for tensor
    cores that `read_code` does not know are seen in the source, where their names end in "mma".
    """
    if any(_PRODUCTS.search(text) for text in (source.body, *(include.text for include in source.includes))):
        return 0.0
    try:
        codes = read_code(cubin, spec.compute_capability)
    except BuildError:
        return 0.0
    if any(instruction.kind in _FASTER for code in codes.values() for instruction in code):
        return 0.0
    return flops / (spec.fp32_tflops * 1e9)
