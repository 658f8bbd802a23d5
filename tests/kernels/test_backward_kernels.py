"""What every backward family must get right beside the cases: strides, memory beyond the rows, special values."""

import mmap
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import LaunchError
from autotune.core.outcome import Outcome
from autotune.core.plan import TensorMapArg, pack_arguments
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.emulator.building import build_emulator
from autotune.emulator.emulated_maps import encode_tensor_map
from autotune.emulator.library import EmulatorLibrary
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.every_family import dtypes_of, each_family_of, families_of, fitted, home, name_of, supported
from tests.kernels.attention_cases import CASES, verdict
from tests.kernels.backward_runs import (
    BACKWARD,
    GRADIENTS,
    Arrays,
    View,
    agree,
    default,
    dq_variants,
    far_apart,
    inputs_of,
    moved,
    odd_views,
    one_dout,
    repeats_itself,
    run,
    seen,
)

TOLERANCE = {"fp32": 2e-5, "fp16": 3e-3, "bf16": 2.5e-2}
each_family = each_family_of("backward")
each_dtype = pytest.mark.parametrize(
    ("family", "dtype"),
    [
        pytest.param(family, dtype, id=f"{name_of(family)}-{dtype}")
        for family in families_of("backward")
        for dtype in dtypes_of(family, home(family))
    ],
)


def odd_problem(family: Template, **changed: Any) -> Problem:
    """More keys than queries, in tiles that are cut; fp32 where the family has it."""
    fields: dict[str, Any] = {"B": 2, "NH": 2, "NH_kv": 2, "T": 37, "T_kv": 50, "HS": 64, "dtype": "fp32"}
    return supported(family, fields | changed, home(family))


@each_family
@pytest.mark.parametrize("seed", range(8))
def test_random_configurations_are_right(family: Template, seed: int, cache: BuildCache) -> None:
    rng = np.random.default_rng(seed)
    case = CASES[int(rng.integers(len(CASES)))]
    problem = fitted(family, case.fields, home(family), turn=seed)
    assert problem is not None
    config = dict(Space(family, problem, home(family)).sample(rng))
    found = verdict(family, problem, config, cache, home(family))
    assert (found.outcome, found.message) == (Outcome.OK, ""), (problem, config)


@each_family
def test_rows_without_a_key(family: Template, cache: BuildCache) -> None:
    """With T > T_kv most queries see no key: their gradients are 0, never NaN."""
    problem = odd_problem(family, B=1, NH_kv=1, T=203, T_kv=70)
    for config in dq_variants(family, problem):
        got = run(family, problem, config, inputs_of(problem, 2), {}, cache)
        assert (got["dq"][:, :, : 203 - 70] == 0).all()
        assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
        assert (got["dq"][:, :, 203 - 69 :] != 0).any(axis=-1).all()


@each_family
def test_odd_strides(family: Template, cache: BuildCache) -> None:
    problem = odd_problem(family)
    inputs = inputs_of(problem, 2)
    for config in dq_variants(family, problem):
        got = run(
            family, problem, config, inputs, taken(family, problem, config, inputs, odd_views(inputs), cache), cache
        )
        agree(got, problem, inputs, TOLERANCE[problem.dtype])


def taken(
    family: Template,
    problem: Problem,
    config: dict[str, Value],
    inputs: Arrays,
    views: dict[str, View],
    cache: BuildCache,
) -> dict[str, View]:
    """The views, but for tensors that the family reads by tensor maps: it refuses what TMA cannot copy, and says so."""
    launches = render(family, problem, config, home(family)).plan.launches
    mapped = views.keys() & {arg.name for step in launches for arg in step.args if isinstance(arg, TensorMapArg)}
    if mapped:
        with pytest.raises(LaunchError, match="TMA cannot copy this tensor"):
            run(family, problem, config, inputs, views, cache)
    return {name: view for name, view in views.items() if name not in mapped}


@each_dtype
def test_dout_of_zero_strides(family: Template, dtype: str, cache: BuildCache) -> None:
    problem = odd_problem(family, NH_kv=1, dtype=dtype)
    inputs, views = one_dout(inputs_of(problem, 3))
    config = default(family, problem)
    got = run(family, problem, config, inputs, taken(family, problem, config, inputs, views, cache), cache)
    agree(got, problem, inputs, TOLERANCE[dtype])


@each_family
@pytest.mark.parametrize("causal", [True, False])
def test_nan_beyond_the_valid_rows_does_not_leak(family: Template, causal: bool, cache: BuildCache) -> None:
    """Rows between one head's last and the next head's first hold NaN; there is room for two of the largest tiles."""
    problem = odd_problem(family, causal=causal)
    inputs = inputs_of(problem, 4)
    for config in dq_variants(family, problem):
        got = run(family, problem, config, inputs, far_apart(inputs, 260), cache)
        agree(got, problem, inputs, TOLERANCE[problem.dtype])


def sharp(problem: Problem, factor: float) -> Arrays:
    """Inputs whose log-sum-exps are in the hundreds, and what the forward pass made of them."""
    inputs = inputs_of(problem, 5)
    inputs["k"] = np.abs(inputs["k"])
    inputs["q"] = np.abs(inputs["q"]) * inputs["q"].dtype.type(factor)
    forward = get_op("forward").reference(get_op("forward").problem(**problem.fields), inputs)
    return {**inputs, **{name: forward[name].astype(inputs[name].dtype) for name in ("out", "lse")}}


@each_family
@pytest.mark.parametrize("factor", [64.0, -64.0])
def test_large_scores_are_stable(family: Template, factor: float, cache: BuildCache) -> None:
    """exp(score - lse) overflows for keys that are not there, whose score is 0, if the log-sum-exp is far below 0."""
    problem = odd_problem(family, B=1, NH=1, NH_kv=1, T=70, T_kv=70, causal=False)
    inputs = sharp(problem, factor)
    assert (inputs["lse"] * np.sign(factor) > 100).all()
    for config in dq_variants(family, problem):
        got = run(family, problem, config, inputs, {}, cache)
        assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
        agree(got, problem, inputs, 1e-2)  # a score of hundreds is known to 1e-4, and so is its exponential


REPEATS = {
    "flash_simt": [False, False, True],
    "unfused": [True],
    "flash_mma": [False, False, True, True],
    "flash_tf32x3": [False, True],
    "flash_wgmma": [False, False, True, False],
}
"""Of the families that tell: for each way of accumulating dQ, whether two runs give the same bits."""


@each_family
def test_families_that_say_so_repeat_themselves_to_the_bit(family: Template, cache: BuildCache) -> None:
    problem = odd_problem(family, B=1, NH_kv=1, T=150, T_kv=150)
    claims = [repeats_itself(family, problem, config, cache) for config in dq_variants(family, problem)]
    assert claims == REPEATS.get(family.name, claims)


@each_family
def test_offsets_past_two_to_the_32(family: Template, cache: BuildCache) -> None:
    """Rows 2^28 and heads 5 * 2^30 elements apart: an offset in 32 bits lands elsewhere.

    The storage is an anonymous mapping of 21 or 42 GB of which only the pages in use are ever touched.
    """
    problem = odd_problem(family, B=1, T=20, T_kv=20)
    config = dq_variants(family, problem)[-1]  # no step that zeroes a buffer
    source = render(family, problem, config, home(family))
    tensors = {t.name: t for t in BACKWARD.tensors(problem) if t.name != "lse"}
    inputs = inputs_of(problem, 8)
    dtype = numpy_dtype(problem.dtype)
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.12 on
    size = 40 * 2**28 * np.dtype(dtype).itemsize
    far = np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve), dtype)
    views = {name: (far, (40 * 2**28, 20 * 2**28, 2**28, 1), 64 * at) for at, name in enumerate(tensors)}
    for name in tensors.keys() & inputs.keys():
        seen(far, tensors[name].shape, *views[name][1:])[...] = inputs[name]
    near = {
        buffer.name: np.full(buffer.elements, np.nan, numpy_dtype(buffer.dtype))
        for buffer in source.plan.buffers
        if buffer.name not in views
    }
    near["lse"][...] = inputs["lse"].ravel()
    addresses = {name: array.ctypes.data for name, array in near.items()} | dict.fromkeys(views, far.ctypes.data)
    library = EmulatorLibrary(build_emulator(source, cache).path)
    for step in moved(source.plan, views).launches:
        packed = pack_arguments(step.args, addresses, encode_tensor_map)
        assert library.launch(step, packed, 2) is None
    library.close()
    got = {name: seen(far, tensors[name].shape, *views[name][1:]).copy() for name in GRADIENTS}
    agree(got, problem, inputs, TOLERANCE[problem.dtype])
