"""Every plain backward family on the emulator: hard shapes, dtypes, layouts, strides, special values, parameters."""

import mmap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import numpy_dtype
from autotune.core.outcome import Outcome
from autotune.core.plan import Arg, Launch, LaunchPlan, ViewArg, pack_arguments
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.emulated import CpuDevice
from autotune.emulator.building import build_emulator
from autotune.emulator.library import EmulatorLibrary
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import CASE_NAMES, CASES, SPEC, AttentionCase, covering, families, verdict

BACKWARD = get_op("backward")
FAMILIES = families("backward")
GRADIENTS = ("dq", "dk", "dv")
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])

Arrays = dict[str, NDArray[Any]]
View = tuple[NDArray[Any], tuple[int, ...], int]
"""A storage, element strides of the tensor in it, and the tensor's offset."""


def default(family: Template, problem: Problem, **values: Value) -> dict[str, Value]:
    """The family's configuration for a problem, some values changed."""
    return {**Space(family, problem, SPEC).default(), **values}


@each_family
@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_every_case_is_right(family: Template, case: AttentionCase, cache: BuildCache) -> None:
    problem = case.problem("backward")
    assert family.why_unsupported(problem, SPEC) is None
    found = verdict(family, problem, default(family, problem), cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")


@each_family
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_every_parameter_value_is_right(family: Template, dtype: str, cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=3, NH_kv=1, T=113, T_kv=203, HS=64, dtype=dtype, causal=True)
    for config in covering(Space(family, problem, SPEC), seed=3):
        found = verdict(family, problem, config, cache)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@each_family
@pytest.mark.parametrize("seed", range(8))
def test_random_configurations_are_right(family: Template, seed: int, cache: BuildCache) -> None:
    rng = np.random.default_rng(seed)
    case = CASES[int(rng.integers(len(CASES)))]
    problem = case.problem("backward")
    config = dict(Space(family, problem, SPEC).sample(rng))
    found = verdict(family, problem, config, cache)
    assert (found.outcome, found.message) == (Outcome.OK, ""), (case.name, config)


@each_family
@pytest.mark.parametrize("skip_masked", [True, False])
def test_rows_without_a_key_and_keys_without_a_query(family: Template, skip_masked: bool, cache: BuildCache) -> None:
    """With T > T_kv most queries see no key; with the mask moved the other way every key is seen by the last query."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=203, T_kv=70, HS=32, dtype="fp16", causal=True)
    got = run(family, problem, default(family, problem, SKIP_MASKED=skip_masked), inputs_of(problem, 2), {}, cache)
    assert (got["dq"][:, :, : 203 - 70] == 0).all()
    assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
    assert (got["dq"][:, :, 203 - 69 :] != 0).any(axis=-1).all()


@each_family
def test_head_sizes_have_configurations(family: Template) -> None:
    for HS in (*range(8, 113, 8), 128, 160, 192, 224, 256):
        for dtype in ("fp16", "bf16", "fp32"):
            problem = BACKWARD.problem(HS=HS, dtype=dtype)
            assert family.why_unsupported(problem, SPEC) is None
            assert Space(family, problem, SPEC).size > 100
    assert family.why_unsupported(BACKWARD.problem(HS=264), SPEC) is not None
    assert family.why_unsupported(BACKWARD.problem(HS=12), SPEC) is not None


def inputs_of(problem: Problem, seed: int) -> Arrays:
    return BACKWARD.inputs(problem, seed)


def run(
    family: Template,
    problem: Problem,
    config: dict[str, Value],
    inputs: Mapping[str, NDArray[Any]],
    views: Mapping[str, View],
    cache: BuildCache,
) -> Arrays:
    """The gradients, from inputs in the op's own layout except where `views` places a tensor."""
    source = render(family, problem, config, SPEC)
    tensors = {tensor.name: tensor for tensor in BACKWARD.tensors(problem)}
    placed = {name: views.get(name) or place(inputs[name], tensors[name].strides) for name in inputs}
    placed |= {name: view for name, view in views.items() if name not in inputs}
    plan = moved(source.plan, placed)
    device = CpuDevice(SPEC, threads=2)
    device.allocate(plan.buffers)
    for buffer in plan.buffers:
        if buffer.name in placed and buffer.name in inputs:
            device.upload(buffer.name, placed[buffer.name][0])
        else:
            device.poison(buffer.name)
    program = device.load(build_emulator(source, cache), plan)
    device.run(program, plan)
    storages = {name: device.download(name) for name in GRADIENTS}
    program.close()
    device.close()
    where = {name: placed[name][1:] if name in placed else (tensors[name].strides, 0) for name in GRADIENTS}
    return {name: seen(storages[name], tensors[name].shape, *where[name]) for name in GRADIENTS}


def moved(plan: LaunchPlan, views: Mapping[str, View]) -> LaunchPlan:
    """The launch plan with the tensors where `views` says."""

    def move(arg: Arg) -> Arg:
        if isinstance(arg, ViewArg) and arg.name in views:
            return replace(arg, strides=views[arg.name][1], offset=views[arg.name][2])
        return arg

    buffers = tuple(
        replace(buffer, elements=views[buffer.name][0].size) if buffer.name in views else buffer
        for buffer in plan.buffers
    )
    steps = tuple(
        replace(step, args=tuple(map(move, step.args))) if isinstance(step, Launch) else step for step in plan.steps
    )
    return LaunchPlan(buffers, steps)


def seen(storage: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
    """A tensor in its logical shape."""
    steps = tuple(stride * storage.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)


def place(array: NDArray[Any], strides: tuple[int, ...], offset: int = 0) -> View:
    """The array in a storage of its own, NaN wherever none of its elements lies."""
    elements = offset + 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True))
    storage = np.full(elements, np.nan, array.dtype)
    seen(storage, array.shape, strides, offset)[...] = array
    return storage, strides, offset


def agree(got: Arrays, problem: Problem, inputs: Arrays, tolerance: float = 2e-5) -> None:
    """Equal to the reference up to rounding; NaN fails."""
    expected = BACKWARD.reference(problem, inputs)
    for name in GRADIENTS:
        scale = max(1.0, float(np.abs(expected[name]).max()))
        np.testing.assert_allclose(
            got[name].astype(np.float64), expected[name], rtol=0, atol=tolerance * scale, equal_nan=False, err_msg=name
        )


def odd_views(inputs: Arrays) -> dict[str, View]:
    """Of B=2, NH=2, T=37, T_kv=50, HS=64: an inner stride of 2, rows that start between vectors, a base that is not
    aligned, gradients with gaps."""
    return {
        "q": place(inputs["q"], (2 * 37 * 130, 37 * 130, 130, 2)),
        "k": place(inputs["k"], (50 * 2 * 67, 67, 2 * 67, 1)),
        "v": place(inputs["v"], (2 * 50 * 64, 50 * 64, 64, 1), offset=1),
        "dout": place(inputs["dout"], (2 * 37 * 64, 37 * 64, 1, 37)),
        "dq": place(np.zeros_like(inputs["q"]), (2 * 37 * 65, 37 * 65, 65, 1), offset=3),
        "dk": place(np.zeros_like(inputs["k"]), (2 * 50 * 64, 50 * 64, 1, 50)),
    }


def far_apart(inputs: Arrays, rows: int) -> dict[str, View]:
    """Of NH=2, HS=64: room for so many rows from one head to the next, NaN where there are none."""
    gap = 64 * rows
    return {name: place(inputs[name], (2 * gap, gap, 64, 1)) for name in ("q", "k", "v", "out", "dout")}


def one_dout(inputs: Arrays) -> tuple[Arrays, dict[str, View]]:
    """The gradient of a sum: one number stands for all of dO."""
    one = np.full(1, 0.75, inputs["dout"].dtype)
    return {**inputs, "dout": np.broadcast_to(one, inputs["dout"].shape)}, {"dout": (one, (0, 0, 0, 0), 0)}


def repeats_itself(family: Template, problem: Problem, config: dict[str, Value], cache: BuildCache) -> bool:
    """Whether it claims to; if so, it must."""
    inputs = inputs_of(problem, 7)
    claim = bool(family.front.deterministic({**problem.fields, **config, "device": SPEC}))
    if claim:
        first, second = (run(family, problem, config, inputs, {}, cache) for _ in range(2))
        assert all(first[name].tobytes() == second[name].tobytes() for name in GRADIENTS)
    return claim


@each_family
def test_odd_strides(family: Template, cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp32", causal=True)
    inputs = inputs_of(problem, 2)
    for config in dq_variants(family, problem):
        agree(run(family, problem, config, inputs, odd_views(inputs), cache), problem, inputs)


def dq_variants(family: Template, problem: Problem) -> list[dict[str, Value]]:
    """The default configuration, once for each way of accumulating dQ where there are several."""
    ways = next((p.values for p in family.parameters if p.name == "DQ_ACCUMULATE"), ())
    configs = [default(family, problem, DQ_ACCUMULATE=way) for way in ways] or [default(family, problem)]
    space = Space(family, problem, SPEC)
    return [config for config in configs if space.contains(config)]


@each_family
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_dout_of_zero_strides(family: Template, dtype: str, cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=1, T=37, T_kv=50, HS=64, dtype=dtype, causal=True)
    inputs, views = one_dout(inputs_of(problem, 3))
    got = run(family, problem, default(family, problem), inputs, views, cache)
    agree(got, problem, inputs, 2e-5 if dtype == "fp32" else 3e-3)


@each_family
@pytest.mark.parametrize("causal", [True, False])
def test_nan_beyond_the_valid_rows_does_not_leak(family: Template, causal: bool, cache: BuildCache) -> None:
    """Rows between one head's last and the next head's first hold NaN; `place` fills them so."""
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp16", causal=causal)
    inputs = inputs_of(problem, 4)
    for config in dq_variants(family, problem):
        agree(run(family, problem, config, inputs, far_apart(inputs, 80), cache), problem, inputs, 3e-3)


@each_family
@pytest.mark.parametrize("factor", [300.0, -300.0])
def test_large_scores_are_stable(family: Template, factor: float, cache: BuildCache) -> None:
    """Log-sum-exps of hundreds, also negative: exp(score - lse) overflows for keys that are not there."""
    problem = BACKWARD.problem(B=1, NH=1, NH_kv=1, T=70, T_kv=70, HS=64, dtype="fp32", causal=True)
    inputs = inputs_of(problem, 5)
    inputs["k"] = np.abs(inputs["k"])
    inputs["q"] = np.abs(inputs["q"]) * np.float32(factor)
    scale = BACKWARD.scalars(problem)["scale"]
    forward = get_op("forward").reference(get_op("forward").problem(**problem.fields), inputs)
    inputs["out"], inputs["lse"] = forward["out"].astype(np.float32), forward["lse"].astype(np.float32)
    assert (np.abs(inputs["lse"]) > 1000 * scale).all()
    got = run(family, problem, default(family, problem), inputs, {}, cache)
    assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
    agree(got, problem, inputs, 2e-2)  # a score of a thousand is known to 1e-4, and so is its exponential


@each_family
def test_families_that_say_so_repeat_themselves_to_the_bit(family: Template, cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=150, HS=64, dtype="fp32", causal=True)
    claims = [repeats_itself(family, problem, config, cache) for config in dq_variants(family, problem)]
    assert claims == ([False, False, True] if family.name == "flash_simt" else [True])


@each_family
def test_offsets_past_two_to_the_32(family: Template, cache: BuildCache) -> None:
    """Rows 2^28 and heads 5 * 2^30 elements apart: an offset in 32 bits lands elsewhere.

    The storage is an anonymous mapping of 21 GB of which only the pages in use are ever touched.
    """
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=2, T=20, T_kv=20, HS=64, dtype="fp16", causal=True)
    config = dq_variants(family, problem)[-1]  # no step that zeroes a buffer
    source = render(family, problem, config, SPEC)
    tensors = {t.name: t for t in BACKWARD.tensors(problem) if t.name != "lse"}
    inputs = inputs_of(problem, 8)
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.12 on
    memory = mmap.mmap(-1, 2 * 40 * 2**28, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    far = np.frombuffer(memory, np.float16)
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
        packed = pack_arguments(step.args, addresses)
        assert library.launch(step.kernel, step.grid, step.block, step.smem, packed, 2) is None
    library.close()
    got = {name: seen(far, tensors[name].shape, *views[name][1:]).copy() for name in GRADIENTS}
    agree(got, problem, inputs, 3e-3)
