"""The device's own limits on a launch, checked before anything is built."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from autotune.families.expressions import Expression
from autotune.families.frontmatter import LaunchSpec
from autotune.gpus.spec import DeviceSpec

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_CLUSTER = 8  # blocks: more are not portable
"""Most blocks, and most threads, along x, y and z on every GPU there is."""


@dataclass(frozen=True)
class Limit:
    """Whether a limit holds (a boolean, or an array of them) and what to say where it does not: of a grid nothing."""

    holds: Any
    why: str


def device_limits(launch: LaunchSpec, namespace: Mapping[str, Any], spec: DeviceSpec, grid: bool) -> Iterator[Limit]:
    """Shared memory, threads, block and grid sizes of one launch; for one configuration or for a grid of them."""

    def value(expression: Expression) -> Any:
        return expression.over(namespace) if grid else expression(namespace)

    inactive = np.False_ if launch.when is None else np.logical_not(np.asarray(value(launch.when), dtype=bool))
    for holds, why in _checks(launch, spec, value):
        yield Limit(np.logical_or(inactive, holds), "" if grid else why())


def _checks(launch: LaunchSpec, spec: DeviceSpec, value: Any) -> Iterator[tuple[Any, Callable[[], str]]]:
    """What holds, and who says why it does not: to write arrays of a grid as text takes longer than all the rest."""
    smem, threads = value(launch.smem), 1
    yield (
        np.asarray(smem) <= spec.max_shared_memory,
        lambda: (
            f"kernel {launch.kernel} asks for {smem} bytes of shared memory; "
            f"{spec.title} allows {spec.max_shared_memory}"
        ),
    )
    for expression in launch.block:
        threads = threads * value(expression)
    yield (
        np.asarray(threads) <= spec.max_threads_per_block,
        lambda: (
            f"kernel {launch.kernel} asks for {threads} threads a block; "
            f"{spec.title} allows {spec.max_threads_per_block}"
        ),
    )
    for kind, expressions, largest in (("block", launch.block, MAX_BLOCK), ("grid", launch.grid, MAX_GRID)):
        for axis, expression, most in zip("xyz", expressions, largest, strict=False):
            size = value(expression)
            why = partial(
                "kernel {}: {} axis {} is {}; 1 to {} is allowed".format, launch.kernel, kind, axis, size, most
            )
            yield _between(size, most), why


def _between(size: Any, most: int) -> Any:
    return np.logical_and(np.asarray(size) >= 1, np.asarray(size) <= most)
