"""What a device finds by itself: the same as the host where all is right, and nothing else."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.core.arithmetic import FULL
from autotune.core.dtypes import numpy_dtype
from autotune.core.measurement import Verification
from autotune.core.plan import Buffer, LaunchPlan, TensorSpec, Zero
from autotune.core.problem import Problem
from autotune.devices.comparison_tables import comparison_source
from autotune.devices.device_comparison import DeviceComparison
from autotune.devices.host_comparison import HostComparison
from autotune.devices.sides import Side
from autotune.ops.expected import Expectation, ExpectedUnit, tensor_view
from autotune.ops.op import Arrays
from tests.comparing_doubles import PLENTY, ComparingCpu
from tests.device_doubles import LowerHalf

PROBLEM = Problem("lower_half", (("B", 1), ("dtype", "fp32")))
DTYPES = ("fp16", "bf16", "fp32", "fp64")


class Units(LowerHalf):
    """Outputs of any shape, whose first two axes are the units."""

    def __init__(self, units: tuple[int, int]) -> None:
        self.grid = units

    def units(self, problem: Problem) -> int:
        return math.prod(self.grid)

    def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:
        one, other = divmod(index, self.grid[1])
        return {name: array[one : one + 1, other : other + 1] for name, array in arrays.items()}


@dataclass
class Case:
    """A side, and what is downloaded of it."""

    op: Units
    side: Side
    storages: dict[str, NDArray[Any]]

    @property
    def view(self) -> NDArray[Any]:
        return tensor_view(self.storages["s"], self.side.tensors[0])

    def reference(self, at: tuple[int, ...]) -> float:
        unit = self.side.expected.sources[at[0] * self.op.grid[1] + at[1]]
        return float(self.side.expected.units[unit].reference["y"][0, 0][at[2:]])


def make_case(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], *, gaps: bool = False, bound: str = "rows",
    zeroed: bool = False, right: bool = True,
) -> Case:  # fmt: skip
    """An output of random values, each within its bound, of units that repeat."""
    order = rng.permutation(len(shape))
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step = step * shape[axis] + int(gaps) * int(rng.integers(0, 3))
    tensor = TensorSpec("y", shape, tuple(strides), dtype, "output", "s", int(gaps) * int(rng.integers(0, 5)))
    of_unit = (1, 1, *shape[2:])
    different = int(rng.integers(1, shape[0] * shape[1] + 1))
    sources = tuple(int(rng.integers(0, different)) for _ in range(shape[0] * shape[1]))
    epsilon = 1e-3 if dtype in ("fp16", "bf16") else 1e-6
    units = []
    for _ in range(different):
        exact = rng.normal(size=of_unit).astype(numpy_dtype(dtype)).astype(np.float64) + epsilon * rng.normal(
            size=of_unit
        )
        bounds: Any = {
            "rows": 0.05 + np.abs(rng.normal(size=(*of_unit[:-1], 1))),
            "elements": 0.05 + np.abs(rng.normal(size=of_unit)),
            "one": float(0.05 + rng.random()),
        }[bound]
        units.append(ExpectedUnit({"y": exact}, {FULL: {"y": bounds}}))
    expected = Expectation(PROBLEM, {}, (tensor,), tuple(units), sources)
    buffer = Buffer("s", dtype, tensor.extent + int(gaps) * int(rng.integers(0, 4)), "output")
    plan = LaunchPlan((buffer,), (Zero("s"),) if zeroed else ())
    storage = np.frombuffer(bytes([0 if zeroed else 0x55]) * buffer.nbytes, numpy_dtype(dtype)).copy()
    case = Case(Units((shape[0], shape[1])), Side(plan, (tensor,), expected, 0x55), {"s": storage})
    for index in np.ndindex(shape[:2]):
        unit = units[sources[index[0] * shape[1] + index[1]]]
        slack = np.broadcast_to(np.asarray(unit.bounds[FULL]["y"]), of_unit)[0, 0]
        noise = rng.normal(size=shape[2:]) * slack / 10 if right else 0.0
        case.view[index] = (unit.reference["y"][0, 0] + noise).astype(numpy_dtype(dtype))
    return case


@pytest.fixture(scope="module")
def device() -> Iterator[ComparingCpu]:
    found = ComparingCpu()
    yield found
    found.close()


def found_here(device: Any, case: Case) -> Verification | None:
    comparison = DeviceComparison(device, case.op, device.build(comparison_source()), PLENTY)
    buffers = comparison.buffers((case.side,))
    assert buffers is not None
    device.allocate((*case.side.plan.buffers, *buffers))
    comparison.placed(buffers)
    device.upload("s", case.storages["s"])
    return comparison.compare(case.side)


def check(device: Any, case: Case) -> bool:
    """Whether all is right: the device says what the host says, or leaves it to the host."""
    here = found_here(device, case)
    there, message = HostComparison(case.op).compare(case.side, case.storages)
    if here is None:
        return False
    assert message == ""
    assert same(here, there, case), (here, there)
    return True


def same(one: Verification, other: Verification, case: Case) -> bool:
    """The same but for which of the elements is named that are equally near to their bounds."""
    (mine,), (theirs,) = one.checks, other.checks
    assert mine.at is not None
    assert theirs.at is not None
    assert abs(float(case.view[mine.at]) - case.reference(mine.at)) == mine.max_abs_error or mine.max_abs_error == 0.0
    tied = mine.part_of_bound == theirs.part_of_bound
    return mine == theirs or (tied and replace(one, checks=()) == replace(other, checks=()))


SHAPES = [(1, 1, 1, 1), (2, 3, 5, 7), (1, 2, 40, 33), (3, 1, 9), (2, 2), (1, 1, 100, 64)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bound", ["rows", "elements", "one"])
def test_what_is_right_is_found_as_the_host_finds_it(
    device: ComparingCpu, dtype: str, shape: tuple[int, ...], bound: str
) -> None:
    if bound == "rows" and len(shape) == 2:
        bound = "one"
    rng = np.random.default_rng(len(shape) + ord(dtype[-1]))
    case = make_case(rng, dtype, shape, gaps=True, bound=bound)
    here = found_here(device, case)
    assert here == HostComparison(case.op).compare(case.side, case.storages)[0]


@dataclass(frozen=True)
class Planted:
    """One element of any kind, in a result, a reference and a bound; `where` in the whole, from 0 to 1."""

    value: float
    expected: float
    bound: float
    where: float


PLANTED = st.builds(
    Planted,
    st.sampled_from([math.nan, math.inf, -math.inf, 1e30, -0.0, 65504.0, -65519.0, 65520.0, 3.4e38, 3.39e38]),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e39, 1e5, 0.0, 65519.0, 65520.0, -7e4, 3.396e38, 3.4e38]),
    st.sampled_from([0.0, 0.5, 1e4, math.nan]),
    st.floats(0, 1),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32), dtype=st.sampled_from(DTYPES), shape=st.sampled_from(SHAPES), gaps=st.booleans(),
    bound=st.sampled_from(["elements", "one"]), zeroed=st.booleans(), planted=PLANTED,
)  # fmt: skip
def test_whatever_is_not_right_is_left_to_the_host(
    device: ComparingCpu,
    seed: int,
    dtype: str,
    shape: tuple[int, ...],
    gaps: bool,
    bound: str,
    zeroed: bool,
    planted: Planted,
) -> None:
    rng = np.random.default_rng(seed)
    case = make_case(rng, dtype, shape, gaps=gaps, bound=bound, zeroed=zeroed)
    element = min(int(planted.where * math.prod(shape)), math.prod(shape) - 1)
    at = tuple(int(axis) for axis in np.unravel_index(element, shape))
    unit = case.side.expected.units[case.side.expected.sources[at[0] * shape[1] + at[1]]]
    with np.errstate(over="ignore"):
        case.view[at] = np.float64(planted.value).astype(numpy_dtype(dtype))
    reference: Any = unit.reference["y"]
    reference[(0, 0, *at[2:])] = planted.expected
    allowed = unit.bounds[FULL]["y"]
    if isinstance(allowed, np.ndarray):
        allowed[(0, 0, *at[2:])] = planted.bound
    with np.errstate(over="ignore", invalid="ignore"):
        held = float(np.float64(planted.expected).astype(numpy_dtype(dtype)))
        got = float(case.view[at])
    right = check(device, case)
    _, message = HostComparison(case.op).compare(case.side, case.storages)
    # What the host may let pass for what stands beside it, the device leaves to the host.
    overflow = math.isinf(held) and math.isfinite(planted.expected) and math.isfinite(got)
    unbounded = bound == "elements" and math.isnan(planted.bound)
    assert right == (message == "" and not overflow and not unbounded)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_element_is_noticed_wherever_it_is(device: ComparingCpu, dtype: str) -> None:
    case = make_case(np.random.default_rng(3), dtype, (2, 3, 4, 5), gaps=True)
    assert check(device, case)
    for at in np.ndindex(case.view.shape):
        kept, case.view[at] = case.view[at].copy(), 9.0
        assert found_here(device, case) is None, at
        case.view[at] = kept
    assert check(device, case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zeroed", [False, True])
def test_one_write_between_the_tensors_is_noticed_wherever_it_is(
    device: ComparingCpu, dtype: str, zeroed: bool
) -> None:
    case = make_case(np.random.default_rng(5), dtype, (2, 2, 3, 3), gaps=True, zeroed=zeroed)
    storage, inside = case.storages["s"], HostComparison(case.op).inside(case.side, case.side.plan.buffers[0])
    assert check(device, case)
    assert inside is not None
    assert (~inside).sum() > 3
    for at in np.flatnonzero(~inside):
        for byte in (0, storage.itemsize - 1):
            storage.view(np.uint8)[at * storage.itemsize + byte] ^= 1
            assert found_here(device, case) is None
            storage.view(np.uint8)[at * storage.itemsize + byte] ^= 1
    assert check(device, case)


def test_of_elements_that_are_equally_near_the_first_is_named(device: ComparingCpu) -> None:
    case = make_case(np.random.default_rng(3), "fp32", (1, 2, 60, 64), bound="elements", right=False)
    (unit, *_) = case.side.expected.units
    case = replace(case, side=replace(case.side, expected=replace(case.side.expected, units=(unit,), sources=(0, 0))))
    bounds: Any = unit.bounds[FULL]["y"]
    bounds[...] = 1.0
    reference: Any = unit.reference["y"]
    reference[...] = 0.0
    case.view[...] = 0.0
    for at in ((0, 1, 3, 3), (0, 0, 59, 63), (0, 0, 31, 5)):
        case.view[at] = -0.25
        here = found_here(device, case)
        assert here is not None
        assert (here.checks[0].at, here.checks[0].max_abs_error, here.checks[0].bound) == (at, 0.25, 1.0)


def test_of_nan_that_is_expected_nothing_is_doubted(device: ComparingCpu) -> None:
    case = make_case(np.random.default_rng(3), "fp16", (1, 2, 6, 8))
    for number, unit in enumerate(case.side.expected.units):
        reference: Any = unit.reference["y"]
        reference[0, 0, number] = np.nan
        reference[0, 0, 3, 3:5] = np.inf, -7e4
    for index, source in enumerate(case.side.expected.sources):
        case.view[0, index, source] = np.nan
        case.view[0, index, 3, 3:5] = np.inf, -np.inf
    assert check(device, case)
    case.view[0, 1, 3, 4] = np.inf
    assert found_here(device, case) is None


def test_what_the_kernels_do_not_take_is_left_to_the_host(device: ComparingCpu) -> None:
    artifact = device.build(comparison_source())

    class Copies(Units):
        def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:
            return {name: array.copy() for name, array in super().unit(problem, arrays, index).items()}

    rng = np.random.default_rng(3)
    case, whole = make_case(rng, "fp32", (1, 2, 6, 8)), make_case(rng, "fp32", (1, 1, 2, 2, 2))
    tensor = replace(case.side.tensors[0], dtype="int32")
    integers = replace(case.side, tensors=(tensor,))
    assert DeviceComparison(device, case.op, artifact, PLENTY).buffers((case.side,)) is not None
    assert DeviceComparison(device, case.op, artifact, 20_000).buffers((case.side,)) is None
    assert DeviceComparison(device, Copies((1, 2)), artifact, PLENTY).buffers((case.side,)) is None
    assert DeviceComparison(device, case.op, artifact, PLENTY).buffers((integers,)) is None
    assert DeviceComparison(device, whole.op, artifact, PLENTY).buffers((whole.side,)) is None


@pytest.mark.parametrize(("dtype", "elements"), [("fp16", 1), ("fp16", 1001), ("fp32", 9000), ("fp64", 0)])
def test_one_changed_bit_is_noticed_wherever_it_is(device: ComparingCpu, dtype: str, elements: int) -> None:
    case = make_case(np.random.default_rng(3), "fp32", (1, 2, 6, 8))
    buffer = Buffer("x", dtype, elements, "input")
    side = replace(case.side, plan=LaunchPlan((*case.side.plan.buffers, buffer), ()))
    comparison = DeviceComparison(device, case.op, device.build(comparison_source()), PLENTY)
    buffers = comparison.buffers((side,))
    assert buffers is not None
    device.allocate((*side.plan.buffers, *buffers))
    comparison.placed(buffers)
    data = np.random.default_rng(1).integers(0, 256, buffer.nbytes).astype(np.uint8)
    device.upload("x", data.view(numpy_dtype(dtype)))
    assert not comparison.has_copy(buffer)
    comparison.copy([buffer])
    assert comparison.has_copy(buffer)
    assert comparison.changed([buffer]) == ()
    for at in sorted({0, data.size // 2, data.size - 17, data.size - 1} & set(range(data.size))):
        data[at] ^= 1
        device.upload("x", data.view(numpy_dtype(dtype)))
        assert comparison.changed([buffer]) == ("x",)
        data[at] ^= 1
    device.upload("x", data.view(numpy_dtype(dtype)))
    assert comparison.changed([buffer]) == ()
    assert np.array_equal(comparison.copied(buffer).view(np.uint8), data)
