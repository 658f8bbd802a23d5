"""What every forward family must get right beside the cases: strides, memory beyond the rows, special values."""

import mmap
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.arithmetic import FULL
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import LaunchError
from autotune.core.plan import TensorMapArg, pack_arguments
from autotune.emulator.emulated_maps import encode_tensor_map
from autotune.emulator.library import EmulatorLibrary
from autotune.families.template import Template
from tests.every_family import each_family_of, families_of, home, name_of, supported
from tests.kernels.forward_runs import (
    FORWARD,
    Arrays,
    Run,
    View,
    agree,
    assert_it_repeats_itself,
    far_apart,
    odd_inputs,
    odd_outputs,
    packed,
    steep,
    stored_once,
)

TOLERANCE = {"fp32": 2e-5, "fp16": 2e-3, "bf16": 2e-2}
OF_LARGE_SCORES = {"fp32": 1e-3, "fp16": 3e-3, "bf16": 2e-2}
"""A score of a thousand is known to 1e-4 at best, and so is its exponential."""


@pytest.fixture(scope="module", params=families_of("forward"), ids=name_of)
def odd(request: pytest.FixtureRequest, cache: BuildCache) -> Run:
    """More keys than queries, in tiles that are cut; fp32 where the family has it."""
    fields: dict[str, Any] = {"B": 2, "NH": 2, "NH_kv": 2, "T": 37, "T_kv": 50, "HS": 64, "dtype": "fp32"}
    return Run(request.param, supported(request.param, fields, home(request.param)), cache)


def test_odd_strides(odd: Run) -> None:
    inputs = FORWARD.inputs(odd.problem, seed=2)
    for out in odd_outputs(numpy_dtype(odd.problem.dtype)):
        views = taken(odd, inputs, {**odd_inputs(inputs), "out": out})
        agree(odd(views), odd.reference(inputs), TOLERANCE[odd.problem.dtype])


def taken(odd: Run, inputs: Arrays, views: dict[str, View]) -> dict[str, View]:
    """The views, but for tensors that the family reads by tensor maps: it refuses what TMA cannot copy, and says so."""
    args = [arg for launch in odd.source.plan.launches for arg in launch.args]
    mapped = views.keys() & {arg.name for arg in args if isinstance(arg, TensorMapArg)}
    if mapped:
        with pytest.raises(LaunchError, match="TMA cannot copy this tensor"):
            odd(views)
    others = {name: view for name, view in views.items() if name not in mapped}
    return others | {name: packed(inputs[name]) for name in mapped & inputs.keys()}


def test_zero_strides(odd: Run) -> None:
    inputs, views = stored_once(FORWARD.inputs(odd.problem, seed=2))
    agree(odd(views), odd.reference(inputs), TOLERANCE[odd.problem.dtype])


@pytest.mark.parametrize("aligned", [True, False])
def test_nan_beyond_the_valid_rows_does_not_leak(aligned: bool, odd: Run) -> None:
    """Rows between one head's last key and the next head's first hold NaN, more of them than a tile has."""
    inputs = FORWARD.inputs(odd.problem, seed=4)
    views = far_apart(inputs, 150, offset=int(not aligned))
    agree(odd(views if aligned else taken(odd, inputs, views)), odd.reference(inputs), TOLERANCE[odd.problem.dtype])


@each_family_of("forward")
def test_nan_beyond_the_valid_rows_does_not_leak_without_a_mask(family: Template, cache: BuildCache) -> None:
    fields: dict[str, Any] = {"B": 2, "NH": 2, "NH_kv": 2, "T": 37, "T_kv": 50, "HS": 64, "causal": False}
    problem = supported(family, fields, home(family))
    inputs, run = FORWARD.inputs(problem, seed=4), Run(family, problem, cache)
    agree(run(far_apart(inputs, 150)), run.reference(inputs), TOLERANCE[problem.dtype])


def test_large_scores_are_stable(odd: Run) -> None:
    """exp overflows unless the maximum is taken out."""
    inputs = steep(FORWARD.inputs(odd.problem, seed=5))
    views = {name: packed(array) for name, array in inputs.items()}
    agree(odd(views), odd.reference(inputs), OF_LARGE_SCORES[odd.problem.dtype])


def test_nan_and_infinity_in_valid_inputs_come_out(odd: Run) -> None:
    """A query that sees a NaN key gives NaN, the others are untouched; an infinite value comes out infinite.

    Split into parts, as in tf32x3, it becomes NaN: infinity less infinity.
    """
    inputs = FORWARD.inputs(odd.problem, seed=6)
    inputs["k"][0, 0, 40, 7] = np.nan  # query i sees keys up to i + 13
    inputs["v"][0, 1, 0, 3] = np.inf
    got = odd({name: packed(array) for name, array in inputs.items()})
    assert np.isnan(got["out"][0, 0, 27:]).all()
    assert np.isnan(got["lse"][0, 0, 27:]).all()
    assert np.isfinite(got["out"][0, 0, :27]).all()
    assert np.isfinite(got["lse"][0, 0, :27]).all()
    whole = odd.family.front.arithmetic == FULL
    assert (got["out"][0, 1, :, 3] == np.inf if whole else ~np.isfinite(got["out"][0, 1, :, 3])).all()
    assert np.isfinite(np.delete(got["out"][0, 1], 3, axis=1)).all()
    assert np.isfinite(got["out"][1]).all()


def test_repeated_runs_agree_to_the_bit(odd: Run) -> None:
    """Where the family says so."""
    if odd.family.front.deterministic(
        {**odd.problem.fields, **odd.source.candidate.config, "device": home(odd.family)}
    ):
        assert_it_repeats_itself(odd)


def test_offsets_past_two_to_the_32(odd: Run, cache: BuildCache) -> None:
    """Rows 2^26 and heads 2^32 and more elements apart: an offset in 32 bits lands elsewhere.

    The storage is an anonymous mapping of 19 or 38 GB of which only the pages in use are ever touched.
    """
    problem = odd.problem.replace(B=1, T=70, T_kv=70)
    run = Run(odd.family, problem, cache, odd.source.candidate.config)
    dtype = numpy_dtype(problem.dtype)
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.12 on
    size = 140 * 2**26 * np.dtype(dtype).itemsize
    far = np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve), dtype)
    strides = (140 * 2**26, 70 * 2**26, 2**26, 1)
    views = {name: (far, strides, 64 * at) for at, name in enumerate(("q", "k", "v", "out"))}
    inputs = FORWARD.inputs(problem, seed=8)
    for name, array in inputs.items():
        run.seen(name, far, views)[...] = array
    near = {
        buffer.name: np.full(buffer.elements, np.nan, numpy_dtype(buffer.dtype))
        for buffer in run.source.plan.buffers
        if buffer.name not in views
    }
    addresses = {name: array.ctypes.data for name, array in near.items()} | dict.fromkeys(views, far.ctypes.data)
    library = EmulatorLibrary(run.artifact.path)
    for step in run.placed(views).launches:
        packed_arguments = pack_arguments(step.args, addresses, encode_tensor_map)
        assert library.launch(step, packed_arguments, 2) is None
    library.close()
    got = {"out": run.seen("out", far, views), "lse": run.seen("lse", near["lse"], views)}
    agree(got, run.reference(inputs), TOLERANCE[problem.dtype])
