"""Outputs compared on the device that made them: for a right candidate, nothing is downloaded but what was found.

Only "all right" is believed. Whatever the kernels doubt (an error beyond its bound, NaN that is not expected, a write
between tensors, an input that is not its copy) is for the host to judge, from the very outputs that were doubted.
What is kept on the device for this may be hit by a stray write, and might then let anything pass: whenever it is used
its sum is taken, and where that is not what it was when it had been uploaded, it is uploaded again.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.core.dtypes import DTYPES
from autotune.core.measurement import OutputCheck, Verification
from autotune.core.plan import Arg, Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, Step, TensorSpec, ViewArg, Zero
from autotune.devices.comparison_tables import (
    BETWEEN,
    CHANGES,
    COMPARED,
    RECORD_WORDS,
    SUM,
    THREADS,
    UNIT_WORDS,
    Places,
    bounds_of,
    comparison_source,
    places_of,
    references_of,
)
from autotune.devices.protocol import Comparing, Device, Program
from autotune.devices.sides import Side
from autotune.ops.expected import Expectation
from autotune.ops.op import Op

_BLOCKS = 256  # of a launch at the most: each leaves a record of 48 bytes
_A_BLOCK = 4 * THREADS  # elements, of launches that do not fill the device
_PART_OF_FREE = 4  # of the memory that is free before anything is placed, so much is taken at the most: 1 / 4
_PATIENCE_S = 5.0  # for a build of half a second, beside many others
_OURS = "comparison: "  # before the names of all buffers
_INSIDE, _RECORDS = f"{_OURS}inside", f"{_OURS}records"
_COPIED = "copied"

_Found = NDArray[np.int64]
"""Records of a launch, (blocks, 6)."""


class Making:
    """A device's comparison while its kernels are built; until then, and where they cannot be, there is none."""

    def __init__(self, device: Device | None) -> None:
        """Begin to build them, if the device compares at all; None: it is not to."""
        self._begun: Future[Artifact] | None = None
        self._patience_s = _PATIENCE_S
        if isinstance(device, Comparing):
            with_a_thread = ThreadPoolExecutor(1, "comparison kernels")
            self._begun = with_a_thread.submit(device.build, comparison_source())
            with_a_thread.shutdown(wait=False)

    def ready(self, device: Device, op: Op) -> "DeviceComparison | None":
        """The comparison, once. Waits a while the first time; who gets none asks again."""
        if self._begun is None or not isinstance(device, Comparing):
            return None
        try:
            patience_s, self._patience_s = self._patience_s, 0.0
            artifact = self._begun.result(patience_s)
            self._begun = None
            return DeviceComparison(device, op, artifact, device.free_bytes() // _PART_OF_FREE)
        except TimeoutError:
            return None
        except Exception:  # noqa: BLE001 - no search fails for what makes it quicker
            self._begun = None
            return None


@dataclass(frozen=True)
class _Content:
    """What a buffer holds. `key` tells it from what a buffer of that name may have held before."""

    buffer: Buffer
    key: Hashable
    make: Callable[[], NDArray[Any]]


class DeviceComparison:
    """Holds references and bounds, copies of inputs, and the outputs of a candidate's first run."""

    def __init__(self, device: Device, op: Op, artifact: Artifact, room: int) -> None:
        """`room`: bytes that it may take."""
        self._device, self._op, self._room = device, op, room
        self._program: Program = device.load(artifact, comparison_source().plan)
        self._expected: list[Expectation] = []
        self._places: dict[tuple[int, TensorSpec, str], Places | None] = {}
        self._contents: dict[str, _Content] = {}
        self._there: frozenset[Buffer] = frozenset()
        self._held: dict[str, Hashable] = {}  # of buffers that are there and hold what they should
        self._sums: dict[str, int | None] = {}  # of the same, as they were uploaded
        self._inside = self._records = 0

    def buffers(self, sides: Sequence[Side]) -> tuple[Buffer, ...] | None:
        """What has to exist beside the sides' own; None where they cannot be compared here, or it would be too much."""
        for side in sides:
            for tensor in side.outputs:
                places = self._placed(side, tensor)
                if places is None:
                    return None
                self._contents |= {content.buffer.name: content for content in self._wanted(side, places)}
        inputs = [buffer for side in sides for buffer in side.buffers("input")]
        outputs = [buffer for side in sides for buffer in side.buffers("output")]
        self._inside = max([self._inside, *(buffer.elements for buffer in outputs)])
        looks = max(len(inputs), *(len(side.buffers("output")) + 4 * len(side.outputs) for side in sides))
        self._records = max(self._records, looks * _BLOCKS * RECORD_WORDS)
        wanted = (
            *(content.buffer for content in self._contents.values()),
            *map(_copy, (*inputs, *sides[0].buffers("output"))),
            Buffer(_INSIDE, "uint8", self._inside, "workspace"),
            Buffer(_RECORDS, "int64", self._records, "workspace"),
        )
        return wanted if sum(buffer.nbytes for buffer in wanted) <= self._room else None

    def placed(self, buffers: Sequence[Buffer]) -> None:
        """Say that the device was made to have exactly these of ours, and kept what those held that it had before."""
        kept = {buffer.name for buffer in self._there.intersection(buffers)}
        self._held = {name: key for name, key in self._held.items() if name in kept}
        self._there = frozenset(buffers)

    def forget(self) -> None:
        """Upload what outputs are compared with once more before that."""
        self._held = {name: key for name, key in self._held.items() if name not in self._contents}

    def has_copy(self, buffer: Buffer) -> bool:
        """Whether there is one to tell changes by."""
        return _copy(buffer).name in self._held

    def copy(self, buffers: Sequence[Buffer]) -> None:
        """Keep these as they are now, for `changed`."""
        if buffers:
            copies = tuple((_copy(buffer).name, buffer.name) for buffer in buffers)
            self._device.run(self._program, LaunchPlan((), (), restores=copies))
            self._held |= {name: _COPIED for name, _ in copies}

    def copied(self, buffer: Buffer) -> NDArray[Any]:
        """Such a copy, downloaded."""
        return self._device.download(_copy(buffer).name)

    def changed(self, buffers: Sequence[Buffer]) -> tuple[str, ...]:
        """Which of them seem to be other than when they were copied."""
        pairs = zip(buffers, self._run([*map(_look_for_changes, buffers)]), strict=True)
        return tuple(buffer.name for buffer, records in pairs if not _all_right(records, buffer.nbytes))

    def compare(self, side: Side, storages: Sequence[str] | None = None) -> Verification | None:
        """What `compare_all` says of a side's outputs where all is right, of these storages or of all; else None."""
        chosen = [buffer for buffer in side.buffers("output") if storages is None or buffer.name in storages]
        names = {buffer.name for buffer in chosen}
        compared = [places for places in map(partial(self._placed, side), side.outputs) if places is not None]
        compared = [places for places in compared if places.tensor.storage in names]
        contents = [content for places in compared for content in self._wanted(side, places)]
        steps: list[Step] = [_sum_up(content.buffer) for content in contents]
        looks: list[Places | Buffer] = []
        for buffer in chosen:
            within = [places for places in compared if places.tensor.storage == buffer.name]
            steps += [Zero(_INSIDE), *(self._compare(side, places) for places in within)]
            steps.append(_look_between(side, buffer))
            looks += [*within, buffer]
        for _ in range(2):
            self._bring(contents)
            found = self._run(steps)
            if self._are_whole(contents, found[: len(contents)]):
                return self._verification(side, looks, found[len(contents) :])
        return None

    def _verification(
        self, side: Side, looks: Sequence[Places | Buffer], found: Sequence[_Found]
    ) -> Verification | None:
        checks: dict[str, OutputCheck] = {}
        for look, records in zip(looks, found, strict=True):
            if not _all_right(records, look.total if isinstance(look, Places) else look.elements):
                return None
            if isinstance(look, Places):
                checks[look.tensor.name] = self._check(side, look, records)
        units = len(side.expected.sources)
        ordered = tuple(checks[tensor.name] for tensor in side.outputs if tensor.name in checks)
        return Verification(side.expected.problem.key, ordered, units, units)

    def _are_whole(self, contents: Sequence[_Content], sums: Sequence[_Found]) -> bool:
        """Whether these hold what was uploaded. What does not will be uploaded again."""
        changed = []
        for content, records in zip(contents, sums, strict=True):
            name, found = content.buffer.name, _sum(content.buffer, records)
            if found is None or found != self._sums[name]:
                changed.append(name)
        self._held = {name: key for name, key in self._held.items() if name not in changed}
        return not changed

    def _check(self, side: Side, places: Places, records: _Found) -> OutputCheck:
        """Of the element that is nearest to its bound; the first of those that are equally near."""
        part, error, bound = records[:, :3].view(np.float64).T
        index = records[:, 3]
        worst = min(range(len(records)), key=lambda block: (-part[block], -error[block], index[block]))
        at = places.where(self._op, side.expected.problem, int(index[worst]))
        return OutputCheck(places.tensor.name, float(error[worst]), float(bound[worst]), 0, at)

    def _run(self, steps: Sequence[Step]) -> list[_Found]:
        """The records that each of the launches leaves."""
        self._device.poison(_RECORDS)
        numbers = itertools.count()
        plan = LaunchPlan((), tuple(_recorded(step, numbers) if isinstance(step, Launch) else step for step in steps))
        self._device.run(self._program, plan)
        records = self._device.download(_RECORDS).reshape(-1, _BLOCKS, RECORD_WORDS)
        return [records[number, : launch.blocks] for number, launch in enumerate(plan.launches)]

    def _bring(self, contents: Sequence[_Content]) -> None:
        """Upload what is not there, and take its sum."""
        missing = [content for content in contents if self._held.get(content.buffer.name) != content.key]
        if not missing:
            return
        for content in missing:
            self._device.upload(content.buffer.name, content.make())
        for content, records in zip(missing, self._run([_sum_up(content.buffer) for content in missing]), strict=True):
            self._held[content.buffer.name] = content.key
            self._sums[content.buffer.name] = _sum(content.buffer, records)

    def _placed(self, side: Side, tensor: TensorSpec) -> Places | None:
        key = self._number(side.expected), tensor, side.plan.arithmetic
        if key not in self._places:
            self._places[key] = places_of(self._op, side.expected, tensor, side.plan.arithmetic)
        return self._places[key]

    def _number(self, expected: Expectation) -> int:
        """Expectations are told apart by what they are: they hold arrays."""
        for number, known in enumerate(self._expected):
            if known is expected:
                return number
        self._expected.append(expected)
        return len(self._expected) - 1

    def _wanted(self, side: Side, places: Places) -> tuple[_Content, _Content, _Content]:
        """References, bounds and places of an output."""
        expected, arithmetic, name = side.expected, side.plan.arithmetic, places.tensor.name
        units, which = len(expected.units), self._number(expected)

        def content(what: str, dtype: str, elements: int, key: Hashable, make: Callable[[], NDArray[Any]]) -> _Content:
            return _Content(Buffer(f"{_OURS}{what}", dtype, elements, "workspace"), key, make)

        where = f"places of {name} in {places.tensor.storage}, {which}, {arithmetic}"
        return (
            content(
                f"references of {name}, {which}", "fp64", units * places.elements, "",
                lambda: references_of(expected, name),
            ),
            content(
                f"bounds of {name}, {which}, {arithmetic}", "fp64", units * places.bounds_apart, "",
                lambda: bounds_of(expected, places, arithmetic),
            ),
            content(where, "int64", UNIT_WORDS * len(places.offsets), places, places.table),
        )  # fmt: skip

    def _compare(self, side: Side, places: Places) -> Launch:
        references, bounds, table = (content.buffer for content in self._wanted(side, places))
        tensor, units = places.tensor, len(side.expected.units)
        held = next(buffer.elements for buffer in side.own if buffer.name == tensor.storage)
        args = (
            PointerArg("storage", tensor.storage, 0, tensor.dtype, "input"),
            ScalarArg("held", "long long", held),
            PointerArg("inside", _INSIDE, 0, "uint8", "workspace"),
            _pointer(references),
            _pointer(bounds),
            ScalarArg("different", "long long", units),
            ScalarArg("bounds_apart", "long long", places.bounds_apart),
            ViewArg("units", table.name, 0, table.dtype, places.axes, table.role),
            ScalarArg("number", "long long", len(places.offsets)),
        )
        return _launch(COMPARED[tensor.dtype], args, places.total)


class Kept:
    """Outputs that were copied on the device when they were found to be right."""

    def __init__(self, comparison: DeviceComparison, buffers: Sequence[Buffer]) -> None:
        """Copy them."""
        self._comparison, self._buffers = comparison, buffers
        comparison.copy(buffers)

    def differing(self) -> tuple[str, ...]:
        return self._comparison.changed(self._buffers)

    def image(self, name: str) -> NDArray[Any]:
        return self._comparison.copied(next(buffer for buffer in self._buffers if buffer.name == name))


def _look_between(side: Side, buffer: Buffer) -> Launch:
    args = (
        _pointer(buffer),
        PointerArg("inside", _INSIDE, 0, "uint8", "workspace"),
        ScalarArg("elements", "long long", buffer.elements),
        ScalarArg("size", "int", DTYPES[buffer.dtype].size),
        ScalarArg("byte", "int", side.between(buffer.name)),
    )
    return _launch(BETWEEN, args, buffer.elements)


def _look_for_changes(buffer: Buffer) -> Launch:
    args = _pointer(buffer), _pointer(_copy(buffer)), ScalarArg("nbytes", "long long", buffer.nbytes)
    return _launch(CHANGES, args, buffer.nbytes // 16)


def _sum_up(buffer: Buffer) -> Launch:
    """Of a buffer whose elements have 8 bytes."""
    return _launch(SUM, (_pointer(buffer), ScalarArg("number", "long long", buffer.elements)), buffer.elements)


def _launch(kernel: str, args: tuple[Arg, ...], elements: int) -> Launch:
    """One that lacks its records yet."""
    blocks = min(_BLOCKS, max(1, -(-elements // _A_BLOCK)))
    return Launch(kernel, (blocks, 1, 1), (THREADS, 1, 1), 0, args)


def _recorded(launch: Launch, numbers: Iterator[int]) -> Launch:
    records = PointerArg("records", _RECORDS, next(numbers) * _BLOCKS * RECORD_WORDS, "int64", "output")
    return replace(launch, args=(*launch.args, records))


def _pointer(buffer: Buffer) -> PointerArg:
    return PointerArg(buffer.name, buffer.name, 0, buffer.dtype, buffer.role)


def _copy(buffer: Buffer) -> Buffer:
    return Buffer(f"{_OURS}copy of {buffer.name}", buffer.dtype, buffer.elements, "workspace")


def _sum(buffer: Buffer, records: _Found) -> int | None:
    """None where not all of it was summed up."""
    return int(records[:, 5].sum()) if int(records[:, 4].sum()) == buffer.elements else None


def _all_right(records: _Found, total: int) -> bool:
    """Whether all was looked at, and nothing doubted."""
    compared, doubtful = records[:, 4], records[:, 5]
    return int(compared.sum()) == total and not doubtful.any()
