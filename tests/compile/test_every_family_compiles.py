"""Every family compiles without a warning for every architecture it allows; what is tried first does not spill."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import ARCHITECTURES, build_cubin
from autotune.core.values import Config
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.strictly import compile_strictly
from tests.every_family import FAMILIES, GPU_OF, Fields, dtypes_of, fitted, home, name_of, supported

HEAD_SIZES = (32, 72, 40, 32, 80, 96, 32)
RARE_PATH = {"forward-naive": (164, 64), "forward-warp_per_query": (164, 64), "backward-unfused": (8, 8)}
"""Bytes that families which are never fast spill and keep on the stack: where rows are computed again, as a test
of what is left without that shows. Rows of finite results never go there."""

SPILLING = ("backward-flash_tf32x3",)
"""Families with suggestions that spill a few bytes and are fast all the same; their defaults do not."""


def wanted(op: str, turn: int) -> Fields:
    """dtype, head size, layouts and mask change with the architecture."""
    fields: dict[str, Any] = {}
    for field in get_op(op).fields:
        if field.name == "HS":
            fields[field.name] = HEAD_SIZES[turn]
        elif field.kind == "choice":
            fields[field.name] = field.choices[turn % len(field.choices)]
        elif field.kind == "bool":
            fields[field.name] = turn % 4 < 2
    return fields


def everywhere() -> Iterator[Any]:
    """Each family with each architecture on which it runs."""
    for family in FAMILIES:
        for turn, arch in enumerate(ARCHITECTURES):
            if fitted(family, wanted(family.op, turn), gpu(GPU_OF[arch]), turn) is not None:
                yield pytest.param(family, turn, id=f"{name_of(family)}-{arch}")


@pytest.mark.parametrize(("family", "turn"), list(everywhere()))
def test_compiles_without_warnings(family: Template, turn: int, tmp_path: Path) -> None:
    """A random configuration."""
    arch = ARCHITECTURES[turn]
    spec = gpu(GPU_OF[arch])
    assert spec.arch == arch
    problem = supported(family, wanted(family.op, turn), spec, turn)
    config = small_sample(Space(family, problem, spec), turn)
    assert compile_strictly(render(family, problem, config, spec), arch, tmp_path) == "", (problem, config)


def small_sample(space: Space, seed: int) -> Config:
    """A random configuration, of a few the one with the smallest tiles: the same code, unrolled less often."""
    rng = np.random.default_rng(seed)

    def unrolled(config: Config) -> int:
        return math.prod(int(value) for name, value in config.items() if name in ("BLOCK_M", "BLOCK_N", "UNROLL"))

    return min((space.sample(rng) for _ in range(8)), key=unrolled)


def first_tried() -> Iterator[Any]:
    """Each family with each of its dtypes; in the first of them with all that its searches begin with."""
    for family in FAMILIES:
        for turn, dtype in enumerate(dtypes_of(family, home(family))):
            yield pytest.param(
                family, dtype, turn == 0 and name_of(family) not in SPILLING, id=f"{name_of(family)}-{dtype}"
            )


@pytest.mark.parametrize(("family", "dtype", "all_starts"), list(first_tried()))
def test_what_is_tried_first_does_not_spill(family: Template, dtype: str, all_starts: bool, cache: BuildCache) -> None:
    spec = home(family)
    problem = supported(family, {"dtype": dtype}, spec)
    starts = Space(family, problem, spec).starts()
    for config in starts if all_starts else starts[:1]:
        source = render(family, problem, config, spec)
        artifact = build_cubin(source, spec.arch, cache)
        assert {report.kernel for report in artifact.kernels} == set(source.plan.kernels)
        for report in artifact.kernels:
            allowed = RARE_PATH.get(name_of(family), (0, 0))
            assert (report.spill_bytes, report.stack_bytes) <= allowed, (report.kernel, config)


@pytest.mark.parametrize("family", [f for f in FAMILIES if name_of(f) in RARE_PATH], ids=name_of)
def test_what_spills_is_the_rare_path_alone(family: Template, cache: BuildCache) -> None:
    """Without the calls that compute rows again nothing spills, and nothing lies on the stack."""
    spec = home(family)
    problem = supported(family, {"dtype": dtypes_of(family, spec)[0]}, spec)
    source = render(family, problem, Space(family, problem, spec).default(), spec)
    body, calls = re.subn(r"\bexact\.\w+(<\w+>)?\([^;]*\)", "0.0", source.body)
    assert calls > 0
    for report in build_cubin(replace(source, body=body), spec.arch, cache).kernels:
        assert (report.spill_bytes, report.stack_bytes) == (0, 0), report.kernel


def test_every_family_runs_on_some_architecture() -> None:
    """The cases above are made of what families support: none is left out."""
    compiled = {case.values[0] for case in everywhere()}
    assert compiled == set(FAMILIES)
    assert {case.values[0] for case in first_tried()} == set(FAMILIES)
