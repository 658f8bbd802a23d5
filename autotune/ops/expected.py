"""What a problem's outputs must be: inputs as they lie in memory, float64 references and error bounds.

Computed once per problem and kept as plain arrays, so that a restarted worker reads them back.
"""

import math
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from autotune.core.arithmetic import FULL
from autotune.core.blas import blas_on_one_thread
from autotune.core.dtypes import DTYPES, numpy_dtype
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.core.threads import WORKERS, all_at_work
from autotune.ops.op import Arrays, Bound, Op
from autotune.ops.row_bounds import SLACK, bound_rows

FLOP_BUDGET = 2e10
"""Largest problem (in the op's flops) whose units all have values of their own; in larger ones values repeat."""

_FLOPS_AN_ELEMENT = 600.0
"""Of inputs: making one at random, twice, and reading it in a reference takes as long. Of decoding it is most."""

_FEWEST = 2
_SEED_STEP = 1009  # apart from what an op adds to a seed for its tensors


@dataclass(frozen=True)
class ExpectedUnit:
    """One independently checkable piece: the reference of each output, and by arithmetic the bound of each."""

    reference: Mapping[str, NDArray[np.float64]]
    bounds: Mapping[str, Mapping[str, Bound]]

    @property
    def bound(self) -> Mapping[str, Bound]:
        """The bounds of families that say nothing of their arithmetic."""
        return self.bounds[FULL]


@dataclass(frozen=True)
class Expectation:
    """All that verification needs to know about a problem.

    `images` holds each input storage as a 1-D array, NaN wherever no tensor lies; `outputs` the output tensors.
    Unit i of the problem is to be as `units[sources[i]]`.
    """

    problem: Problem
    images: Mapping[str, NDArray[Any]]
    outputs: tuple[TensorSpec, ...]
    units: tuple[ExpectedUnit, ...]
    sources: tuple[int, ...]


def expect(
    op: Op,
    problem: Problem,
    seed: int,
    flop_budget: float = FLOP_BUDGET,
    *,
    hard: bool = False,
    hidden_nan: bool = False,
) -> Expectation:
    """Inputs, references and bounds. All units of a result are expected, however long the problem.

    `hard`: the inputs are the op's `hard_inputs`. `hidden_nan`: they have NaN where few results depend on it
    (`Op.hide`), hard ones in one tensor of the first unit or of the last alone: what NaN has reached is computed
    again, slowly.

    Problems of more than `flop_budget` flops are made of fewer different units, each in several places chosen at
    random: a kernel that reads or writes in the wrong place meets other values there, and a reference costs the same.

    The bound of an output is taken by row where the op knows its rows' scales (`row_bounds`), else per unit:
    k * max|low_precision - reference| + SLACK * max|reference|, with k the op's `error_factor`, plus the op's `noise`.
    The first maximum counts as no less than one rounding of the largest element: in a unit of few elements it may be
    smaller by luck. There is a bound for each arithmetic that the op can judge, from a low-precision result of that
    arithmetic.
    """
    sources = unit_sources(op.units(problem), effort(op, problem), seed, flop_budget)
    with blas_on_one_thread(), _pool(len(set(sources))) as pool:
        return _expect(pool, op, problem, seed, sources, _maker(op, seed, hard=hard, hidden_nan=hidden_nan))


def _pool(tasks: int) -> ThreadPoolExecutor:
    """Threads for so many units; where these are enough for all cores, each is one thread's."""
    return ThreadPoolExecutor(WORKERS, initializer=all_at_work if tasks >= WORKERS else None)


def _expect(
    pool: ThreadPoolExecutor,
    op: Op,
    problem: Problem,
    seed: int,
    sources: tuple[int, ...],
    make: Callable[[Problem, int], Arrays],
) -> Expectation:
    tensors = op.tensors(problem)
    inputs, pieces = _inputs(op, problem, seed, sources, make)
    units = tuple(pool.map(lambda piece: _unit(op, problem, piece), pieces))
    outputs = tuple(tensor for tensor in tensors if tensor.role == "output")
    return Expectation(problem, storage_images(tensors, inputs), outputs, units, sources)


def make_inputs(op: Op, problem: Problem, seed: int, *, hard: bool) -> Arrays:
    """Inputs alone: what `expectations` has of the first kind, or of the second."""
    hard = hard and op.has_hard_inputs
    sources = unit_sources(op.units(problem), effort(op, problem), seed, FLOP_BUDGET)
    inputs, _ = _inputs(op, problem, seed, sources, _maker(op, seed, hard=hard, hidden_nan=hard))
    return inputs


def _maker(op: Op, seed: int, *, hard: bool, hidden_nan: bool) -> Callable[[Problem, int], Arrays]:
    given = op.hard_inputs if hard else op.inputs

    def make(made: Problem, its_seed: int) -> Arrays:
        values = given(made, its_seed)
        if not hidden_nan or (hard and its_seed != seed):
            return values
        return _in_one_place(op, made, values, seed) if hard else op.hide(made, values)

    return make


def expectations(op: Op, problem: Problem, seed: int) -> tuple[Expectation, ...]:
    """What verification compares with: of the problem's inputs, and of its hard ones if the op has some.

    The hard ones have NaN where few results depend on it.
    """
    kinds = (False, True) if op.has_hard_inputs else (False,)
    sources = unit_sources(op.units(problem), effort(op, problem), seed, FLOP_BUDGET)

    def of(hard: bool) -> Expectation:
        return _expect(pool, op, problem, seed, sources, _maker(op, seed, hard=hard, hidden_nan=hard))

    threads = _pool(len(kinds) * len(set(sources)))
    with blas_on_one_thread(), threads as pool, ThreadPoolExecutor(len(kinds)) as sides:
        return tuple(sides.map(of, kinds))


def effort(op: Op, problem: Problem) -> float:
    """What units of their own would cost, in flops."""
    elements = sum(math.prod(tensor.shape) for tensor in op.tensors(problem) if tensor.role == "input")
    return max(op.flops(problem), _FLOPS_AN_ELEMENT * elements)


def unit_sources(total: int, flops: float, seed: int, budget: float) -> tuple[int, ...]:
    """For each unit the number of the values that it has: its own, unless the whole costs more than `budget` flops."""
    different = total if flops <= budget else max(_FEWEST, int(total * budget / flops))
    if different >= total:
        return tuple(range(total))
    dealt = np.random.default_rng(seed).permutation(np.arange(total) % different)
    return tuple(int(source) for source in dealt)


def _in_one_place(op: Op, problem: Problem, values: Arrays, seed: int) -> Arrays:
    """The values, one tensor of one unit as the op hides it: of those that then hold NaN the seed takes one.

    With an even seed it is the first unit, else the last, whose rows are the last: an examination has seeds of both.
    """
    unit = (op.units(problem) - 1) * (seed % 2)
    here = op.unit(problem, dict(values), unit)
    there = op.hide(op.unit_problem(problem), dict(here), seed)
    changed = [name for name in here if here[name].tobytes() != there[name].tobytes()]
    alternatives = [name for name in changed if np.isnan(there[name]).any()]
    left = {name for number, name in enumerate(alternatives) if number != seed % len(alternatives)}
    taken = [name for name in changed if name not in left]
    mixed = {name: array.copy() if name in taken else array for name, array in values.items()}
    places = op.unit(problem, dict(mixed), unit)
    for name in taken:
        places[name][...] = there[name]
    return mixed


def _inputs(
    op: Op, problem: Problem, seed: int, sources: tuple[int, ...], make: Callable[[Problem, int], Arrays]
) -> tuple[Arrays, list[Arrays]]:
    """The problem's inputs, and those of each different unit."""
    if len(set(sources)) == len(sources):
        inputs = make(problem, seed)
        return inputs, [op.unit(problem, dict(inputs), index) for index in range(len(sources))]
    small = op.unit_problem(problem)
    pieces = [make(small, seed + _SEED_STEP * number) for number in range(max(sources) + 1)]
    whole = {t.name: np.empty(t.shape, numpy_dtype(t.dtype)) for t in op.tensors(problem) if t.role == "input"}
    for index, source in enumerate(sources):
        for name, place in op.unit(problem, whole, index).items():
            place[...] = pieces[source][name]
    return whole, pieces


def tensor_view(storage: NDArray[Any], tensor: TensorSpec) -> NDArray[Any]:
    """The tensor's logical shape over its 1-D storage, by strides and offset; a view, not a copy."""
    strides = tuple(stride * storage.itemsize for stride in tensor.strides)
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides)


def covered(elements: int, tensors: tuple[TensorSpec, ...]) -> NDArray[np.bool_]:
    """Which elements of a storage belong to one of the tensors in it."""
    mask = np.zeros(elements, dtype=np.bool_)
    for tensor in tensors:
        tensor_view(mask, tensor)[...] = True
    return mask


def save(expectations: tuple[Expectation, ...], file: BinaryIO) -> None:
    """Write at the file's start, for `load` in a later process."""
    file.seek(0)
    file.truncate()
    pickle.dump(expectations, file, protocol=pickle.HIGHEST_PROTOCOL)
    file.flush()


def load(file: BinaryIO) -> tuple[Expectation, ...] | None:
    """What `save` wrote, or None when nothing complete is there (the writer may have been killed)."""
    file.seek(0)
    try:
        read = pickle.load(file)
    except (EOFError, pickle.UnpicklingError):
        return None
    return read if isinstance(read, tuple) else None


def storage_images(tensors: tuple[TensorSpec, ...], inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Each input storage as a 1-D array, NaN wherever no tensor lies."""
    images: dict[str, NDArray[Any]] = {}
    by_storage: dict[str, list[TensorSpec]] = {}
    for tensor in tensors:
        if tensor.role == "input":
            by_storage.setdefault(tensor.storage, []).append(tensor)
    for storage, members in by_storage.items():
        dtype = numpy_dtype(members[0].dtype)
        image = np.frombuffer(b"\xff" * (max(tensor.extent for tensor in members) * dtype.itemsize), dtype).copy()
        for tensor in members:
            tensor_view(image, tensor)[...] = inputs[tensor.name]
        images[storage] = image
    return images


def _unit(op: Op, problem: Problem, piece: Arrays) -> ExpectedUnit:
    small = op.unit_problem(problem)
    reference = op.reference(small, piece)
    scales = op.row_scales(small, piece)
    noise = op.noise(small, piece) if not scales else {}
    roundoff = {t.name: (DTYPES[t.dtype].epsilon or 0.0) / 2 for t in op.tensors(small) if t.role == "output"}
    bounds: dict[str, Mapping[str, Bound]] = {}
    for arithmetic in op.arithmetics(small):
        rounded = op.approximate(small, piece, arithmetic)
        of_rounding = {
            name: bound_rows(op.error_factor, rounded[name], exact, roundoff[name], scales[name])
            if name in scales
            else _bound(op.error_factor, rounded[name], exact, roundoff[name]) + noise.get(name, 0.0)
            for name, exact in reference.items()
        }
        bounds[arithmetic] = op.settle_bounds(small, reference, of_rounding)
    return ExpectedUnit(reference, bounds)


def _bound(factor: float, rounded: NDArray[np.float64], exact: NDArray[np.float64], roundoff: float) -> float:
    finite = np.isfinite(exact) & np.isfinite(rounded)
    if not finite.any():
        return 0.0
    error = np.abs(rounded[finite] - exact[finite]).max()
    largest = np.abs(exact[finite]).max()
    return float(factor * max(error, roundoff * largest) + SLACK * largest)
