"""What a problem's outputs must be: inputs as they lie in memory, float64 references and error bounds.

Computed once per problem and kept as plain arrays, so that a restarted worker reads them back.
"""

import os
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from autotune.dtypes import numpy_dtype
from autotune.ops.base import Op
from autotune.plan import TensorSpec
from autotune.problem import Problem

FLOP_BUDGET = 1e11
"""Largest problem (in the op's flops) whose reference is computed in full; longer ones are sampled by units."""

SLACK = 32 * 2.0**-23
"""The bound's absolute part, relative to the largest reference: 32 fp32 roundings of a long accumulation."""


@dataclass(frozen=True)
class ExpectedUnit:
    """One independently checkable piece: reference and bound of each output, by name."""

    index: int
    reference: Mapping[str, NDArray[np.float64]]
    bound: Mapping[str, float]


@dataclass(frozen=True)
class Expectation:
    """All that verification needs to know about a problem.

    `images` holds each input storage as a 1-D array, NaN wherever no tensor lies; `outputs` the output tensors.
    """

    problem: Problem
    images: Mapping[str, NDArray[Any]]
    outputs: tuple[TensorSpec, ...]
    units: tuple[ExpectedUnit, ...]
    units_total: int


def expect(op: Op, problem: Problem, seed: int, flop_budget: float = FLOP_BUDGET) -> Expectation:
    """Inputs from `op.inputs(problem, seed)`, references and bounds of all units (or of sampled whole ones).

    The bound of an output is taken per unit: k * max|low_precision - reference| + SLACK * max|reference|, with
    k the op's `error_factor`, plus the op's `noise`.
    """
    inputs = op.inputs(problem, seed)
    tensors = op.tensors(problem)
    total = op.units(problem)
    indices = sample_units(total, op.flops(problem), seed, flop_budget)
    with ThreadPoolExecutor(max_workers=max(1, min(8, (os.cpu_count() or 1) // 2))) as pool:
        units = tuple(pool.map(lambda index: _unit(op, problem, inputs, index), indices))
    outputs = tuple(tensor for tensor in tensors if tensor.role == "output")
    return Expectation(problem, storage_images(tensors, inputs), outputs, units, total)


def sample_units(total: int, flops: float, seed: int, budget: float) -> tuple[int, ...]:
    """All units when the whole costs no more than `budget` flops; else the first, the last and random others."""
    keep = total if flops <= budget else max(3, int(total * budget / flops))
    if keep >= total:
        return tuple(range(total))
    chosen = {0, total - 1}
    others = np.random.default_rng(seed).permutation(np.arange(1, total - 1))
    chosen.update(int(index) for index in others[: keep - 2])
    return tuple(sorted(chosen))


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


def save(expectation: Expectation, file: BinaryIO) -> None:
    """Write at the file's start, for `load` in a later process."""
    file.seek(0)
    file.truncate()
    pickle.dump(expectation, file, protocol=pickle.HIGHEST_PROTOCOL)
    file.flush()


def load(file: BinaryIO) -> Expectation | None:
    """What `save` wrote, or None when nothing complete is there (the writer may have been killed)."""
    file.seek(0)
    try:
        read = pickle.load(file)
    except (EOFError, pickle.UnpicklingError):
        return None
    return read if isinstance(read, Expectation) else None


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


def _unit(op: Op, problem: Problem, inputs: Mapping[str, NDArray[Any]], index: int) -> ExpectedUnit:
    piece = op.unit(problem, dict(inputs), index)
    small = op.unit_problem(problem)
    reference = op.reference(small, piece)
    rounded = op.low_precision(small, piece)
    noise = op.noise(small, piece)
    bound = {
        name: _bound(op.error_factor, rounded[name], exact) + noise.get(name, 0.0) for name, exact in reference.items()
    }
    return ExpectedUnit(index, reference, bound)


def _bound(factor: float, rounded: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
    finite = np.isfinite(exact) & np.isfinite(rounded)
    if not finite.any():
        return 0.0
    error = np.abs(rounded[finite] - exact[finite]).max()
    return float(factor * error + SLACK * np.abs(exact[finite]).max())
