"""Every access of the families of `matmul`, `softmax` and `softmax_backward` watched: no races, bounds kept."""

from typing import Any

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.values import Value
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.ops.registry import get_op
from autotune.trace.observed import Trace
from autotune.trace.tracing import trace_plan
from tests.kernels.attention_cases import SPEC

FAMILIES = tuple(family for op in ("matmul", "softmax", "softmax_backward") for family in builtin_templates(op))
FIELDS: dict[str, dict[str, Value]] = {
    "matmul": {"B": 1, "NH": 2, "M": 130, "N": 264, "K": 72, "dtype": "fp16"},
    "softmax": {"B": 1, "NH": 2, "T": 67, "T_kv": 104, "dtype": "fp16"},
    "softmax_backward": {"B": 1, "NH": 2, "T": 67, "T_kv": 104, "dtype": "fp16"},
}
CHANGED: dict[str, dict[str, Value]] = {
    "simt": {"STAGES": 1},
    "mma": {"STAGES": 1, "TILES_EACH": 1, "SWIZZLE": False},
    "row_sum": {"LANES": 128, "REDUCE": "shared", "REGISTERS": 0, "ROWS_EACH": 2},
}
CASES: list[tuple[Template, dict[str, Value]]] = [(family, {}) for family in FAMILIES]
CASES += [(f, CHANGED[f.name]) for f in FAMILIES if f.name in CHANGED]


def traced(family: Template, changed: dict[str, Value], cache: BuildCache, **fields: Any) -> Trace:
    op = get_op(family.op)
    problem = op.problem(**{**FIELDS[family.op], **fields})
    config = {**Space(family, problem, SPEC).default(), **changed}
    assert Space(family, problem, SPEC).why_not(config) is None
    source = render(family, problem, config, SPEC)
    images = {name: array.ravel() for name, array in op.inputs(problem, seed=1).items()}
    artifact = build_emulator(source, cache, traced=True)
    return trace_plan(artifact, source.plan, images, op.tensors(problem), blocks=None)


@pytest.mark.parametrize(
    ("family", "changed"), CASES, ids=[f"{f.op}-{f.name}{'-changed' if changed else ''}" for f, changed in CASES]
)
def test_no_races_and_nothing_out_of_bounds(family: Template, changed: dict[str, Value], cache: BuildCache) -> None:
    layout = {"layout": "nn"} if family.op == "matmul" else {}
    assert [str(found) for found in traced(family, changed, cache, **layout).findings] == []


@pytest.mark.parametrize("columns", [32, 33])
def test_a_padded_tile_has_no_bank_conflicts(columns: int, cache: BuildCache) -> None:
    """Lanes that read down a column of 32 meet in one bank, of 33 in as many banks as there are lanes."""
    (family,) = (family for family in FAMILIES if family.name == "thread_per_row")
    trace = traced(family, {"STAGED": f"{columns} columns"}, cache)
    loads = [line for k in trace.kernels for line in k.lines if line.operation in ("shared load", "shared store")]
    assert loads
    assert (sum(line.conflicts for line in loads) > 0) == (columns == 32)


@pytest.mark.parametrize(
    ("fields", "reads"),
    [({"layout": "nn"}, "matrix load"), ({"layout": "nt"}, "matrix load"), ({"layout": "tn"}, "shared load")],
    ids=lambda value: value if isinstance(value, str) else value["layout"],
)
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_tensor_core_products_have_no_bank_conflicts(
    dtype: str, fields: dict[str, Value], reads: str, cache: BuildCache
) -> None:
    (family,) = (family for family in FAMILIES if family.name == "mma")
    tf32 = {"arithmetic": "tf32"} if dtype == "fp32" else {}
    trace = traced(family, {"EPILOGUE": "shared"}, cache, M=128, N=256, K=64, dtype=dtype, **tf32, **fields)
    lines = [line for kernel in trace.kernels for line in kernel.lines]
    for operation in (reads, "async copy", "shared load", "shared store"):
        counted = [line for line in lines if line.operation == operation]
        assert counted
        assert sum(line.conflicts for line in counted) == 0, operation
