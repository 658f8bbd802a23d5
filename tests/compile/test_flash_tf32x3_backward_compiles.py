"""The fp32 tensor core family of the backward pass: every form of its code compiles, its registers suffice."""

from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.values import Value
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.strictly import compile_strictly

BACKWARD = get_op("backward")
FAMILY = find_template("backward", "flash_tf32x3")


@pytest.mark.parametrize(
    ("HS", "changes"),
    [
        (64, {"DQ_ACCUMULATE": "separate", "PEEL": True, "REVERSE": True, "CHUNK": 16, "BLOCK_N": 64}),
        (64, {"OWN_TILES": 2, "UNROLL": 4, "CHUNK": 16, "STAGES": 1, "GRID_MAP": "x=matrix,y=head,z=batch"}),
        (200, {}),
    ],
)
def test_every_form_of_the_code_compiles(HS: int, changes: dict[str, Value], tmp_path: Path) -> None:
    """Each renders other code."""
    problem, spec = BACKWARD.problem(HS=HS, dtype="fp32"), gpu("h200")
    space = Space(FAMILY, problem, spec)
    config = {**space.default(), **changes}
    assert space.contains(config), space.why_not(config)
    assert compile_strictly(render(FAMILY, problem, config, spec), spec.arch, tmp_path) == ""


@pytest.mark.parametrize(("HS", "changes"), [(64, {}), (75, {}), (128, {"PEEL": True})])
def test_registers_suffice(HS: int, changes: dict[str, Value], cache: BuildCache) -> None:
    """No spills: the default at HS=64 and 75; with PEEL at 128, whose default spills bytes outside the inner loops."""
    problem, spec = BACKWARD.problem(HS=HS, dtype="fp32"), gpu("h200")
    space = Space(FAMILY, problem, spec)
    config = {**space.default(), **changes}
    assert space.contains(config)
    source = render(FAMILY, problem, config, spec)
    artifact = build_cubin(source, spec.arch, cache)
    assert {report.kernel for report in artifact.kernels} == set(source.plan.kernels)
    for report in artifact.kernels:
        assert (report.spill_bytes, report.stack_bytes) == (0, 0), report.kernel
