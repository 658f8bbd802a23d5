"""An op and a device that are Python: each kernel is a function that does one thing right or wrong."""

import ctypes
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import DeviceMissing, LaunchError
from autotune.core.measurement import Timing
from autotune.core.plan import Buffer, LaunchPlan, TensorSpec
from autotune.core.problem import Problem
from autotune.devices.factory import DeviceOpener
from autotune.devices.protocol import Device, TimingBudget
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.expected import tensor_view
from autotune.ops.op import Arrays, Field, Op

N = 6


class LowerHalf(Op):
    """y = x / 2 on and below the diagonal, 0 above; B matrices of N x N.

    x has a gap after every row and starts at an offset; y has a gap after every matrix.
    """

    name = "lower_half"
    summary = "half of the lower triangle"
    fields = (Field("B", "int", 3), Field("dtype", "choice", "fp32", choices=("fp32", "fp16")))
    exact_fields = ("dtype",)
    error_factor = 2.0

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        shape = (problem.integer("B"), N, N)
        x = TensorSpec("x", shape, (N * (N + 1), N + 1, 1), problem.dtype, "input", "x", 2)
        y = TensorSpec("y", shape, (N * N + 3, N, 1), problem.dtype, "output", "y")
        return x, y

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        values = np.random.default_rng(seed).normal(size=(problem.integer("B"), N, N))
        return {"x": values.astype(numpy_dtype(problem.dtype))}

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        return {"y": np.tril(inputs["x"].astype(np.float64) / 2)}

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        return {"y": np.tril(inputs["x"] / 2).astype(numpy_dtype(problem.dtype)).astype(np.float64)}

    def flops(self, problem: Problem) -> float:
        return float(problem.integer("B") * N * N)

    def units(self, problem: Problem) -> int:
        return problem.integer("B")

    def unit_problem(self, problem: Problem) -> Problem:
        return problem.replace(B=1)

    def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:
        return {name: array[index : index + 1] for name, array in arrays.items()}


@dataclass(frozen=True)
class LowerHalfSource:
    """Finds the op in whichever process asks; leaves a line in `log` each time."""

    log: Path | None = None

    def resolve(self) -> Op:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write("resolved\n")
        return LowerHalf()


OP = LowerHalf()
PROBLEM = OP.problem()

Views = dict[str, NDArray[Any]]
Kernel = Callable[[Views, Views], None]  # tensors by name, whole storages by name


def right(views: Views, storages: Views) -> None:
    views["y"][...] = np.tril(views["x"] / 2)


def half_written(views: Views, storages: Views) -> None:
    views["y"][:, : N // 2] = np.tril(views["x"] / 2)[:, : N // 2]


def last_unwritten(views: Views, storages: Views) -> None:
    kept = views["y"][-1, -1, -1].copy()
    right(views, storages)
    views["y"][-1, -1, -1] = kept


def one_nan(views: Views, storages: Views) -> None:
    right(views, storages)
    views["y"][1, 3, 2] = np.nan


def one_infinite(views: Views, storages: Views) -> None:
    right(views, storages)
    views["y"][1, 3, 2] = np.inf


def wrong_sign(views: Views, storages: Views) -> None:
    views["y"][...] = np.tril(-views["x"] / 2)


def no_scale(views: Views, storages: Views) -> None:
    views["y"][...] = np.tril(views["x"])


def one_unmasked(views: Views, storages: Views) -> None:
    right(views, storages)
    views["y"][2, 0, 1] = views["x"][2, 0, 1] / 2


def accumulating(views: Views, storages: Views) -> None:
    y = views["y"]
    y[...] = np.where(np.isnan(y), 0, y) + np.tril(views["x"] / 2)


def blending(views: Views, storages: Views) -> None:
    y, half = views["y"], np.tril(views["x"] / 2)
    y[...] = np.where(np.isnan(y), half, (y + half) / 2)


def once(views: Views, storages: Views) -> None:
    if np.isnan(views["y"]).any():
        right(views, storages)


def twice(views: Views, storages: Views) -> None:
    runs = np.nan_to_num(storages["scratch"][1]) + 1
    storages["scratch"][1] = runs
    views["y"][...] = np.tril(views["x"] / 2) if runs <= 2 else 7.0


def changes_input(views: Views, storages: Views) -> None:
    right(views, storages)
    views["x"][0, 0, 0] = 1234.0


def writes_outside(views: Views, storages: Views) -> None:
    right(views, storages)
    storages["y"][N * N] = 7.0  # the gap after the first matrix


def reads_outside(views: Views, storages: Views) -> None:
    right(views, storages)
    views["y"][0, 0, 0] += 0.0 * storages["x"][0]  # before the first element


def workspace_is_zero(views: Views, storages: Views) -> None:
    right(views, storages)
    views["y"] += storages["scratch"][0]


def illegal(views: Views, storages: Views) -> None:
    ctypes.string_at(8)


def aborts(views: Views, storages: Views) -> None:
    os.write(2, b"terminate called after throwing an instance of 'int'\n")
    os.abort()


def never_ends(views: Views, storages: Views) -> None:
    while True:
        time.sleep(0.01)


def babbles(views: Views, storages: Views) -> None:
    _write_everywhere(b"\0\0\0\5hello")  # a message that is none


def claims_much(views: Views, storages: Views) -> None:
    _write_everywhere(b"\0\0\xff\xffthe beginning of a long message")
    never_ends(views, storages)


def _write_everywhere(data: bytes) -> None:
    for entry in list(Path("/proc/self/fd").iterdir()):  # a long-lived parent passes on high numbers
        handle = int(entry.name)
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(handle).st_mode):
                os.write(handle, data)


def refuses(views: Views, storages: Views) -> None:
    raise LaunchError("asks for 300000 bytes of shared memory; NVIDIA H200 allows 232448")


KERNELS: dict[str, Kernel] = {
    kernel.__name__: kernel
    for kernel in (
        right, half_written, last_unwritten, one_nan, one_infinite, wrong_sign, no_scale, one_unmasked, accumulating,
        blending, once, twice, changes_input, writes_outside, reads_outside, workspace_is_zero, illegal, aborts,
        never_ends, refuses, babbles, claims_much,
    )
}  # fmt: skip


@dataclass
class PythonProgram:
    kernel: Kernel

    def close(self) -> None:
        pass


@dataclass
class PythonDevice:
    """Runs the function that an artifact's key names; `times_ms` is what it claims a kernel takes, by name."""

    problem: Problem
    kind: str = "cpu"
    times_ms: Mapping[str, float] = field(default_factory=dict)
    uploads: int = 0  # of inputs
    _buffers: dict[str, tuple[Buffer, NDArray[Any]]] = field(default_factory=dict)

    @property
    def identity(self) -> DeviceIdentity:
        return DeviceIdentity("cuda" if self.kind == "cuda" else "cpu", gpu("h200"))

    def environment(self) -> Mapping[str, str]:
        return {"driver": "python", "pid": str(os.getpid())}

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        kept = {b.name: self._buffers[b.name] for b in buffers if self._buffers.get(b.name, (None,))[0] == b}
        self._buffers = kept | {
            b.name: (b, np.zeros(b.elements, numpy_dtype(b.dtype))) for b in buffers if b.name not in kept
        }

    def upload(self, name: str, data: NDArray[Any]) -> None:
        self.uploads += self._buffers[name][0].role == "input"
        self._buffers[name][1][...] = data

    def poison(self, name: str, byte: int = 0xFF) -> None:
        self._buffers[name][1].view(np.uint8)[...] = byte

    def download(self, name: str) -> NDArray[Any]:
        return self._buffers[name][1].copy()

    def equals(self, name: str, data: NDArray[Any]) -> bool:
        return self._buffers[name][1].tobytes() == data.tobytes()

    def load(self, artifact: Artifact, plan: LaunchPlan) -> PythonProgram:
        return PythonProgram(KERNELS[artifact.key])

    def run(self, program: PythonProgram, plan: LaunchPlan) -> float | None:
        storages = {name: array for name, (_, array) in self._buffers.items()}
        views = {t.name: tensor_view(storages[t.storage], t) for t in OP.tensors(self.problem)}
        with np.errstate(all="ignore"):
            program.kernel(views, storages)
        return None

    def time(self, program: PythonProgram, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        self.run(program, plan)
        ms = self.times_ms.get(program.kernel.__name__, 1.0)
        return Timing("measured", ms, ms, ms, ms, 3, "python")

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class PythonOpener(DeviceOpener):
    kind: str = "cpu"

    def open(self) -> Device:
        device: Any = PythonDevice(PROBLEM, self.kind)
        return device  # type: ignore[no-any-return]


@dataclass(frozen=True)
class MissingOpener(DeviceOpener):
    def open(self) -> Device:
        raise DeviceMissing("no such device here")


def plan(problem: Problem = PROBLEM) -> LaunchPlan:
    x, y = OP.tensors(problem)
    batch = problem.integer("B")
    return LaunchPlan(
        (
            Buffer("x", x.dtype, x.offset + batch * N * (N + 1) + 5, "input"),  # a few elements more than needed
            Buffer("y", y.dtype, batch * (N * N + 3), "output"),
            Buffer("scratch", "fp32", 4, "workspace"),
        ),
        (),
    )


def artifact(kernel: str) -> Artifact:
    return Artifact("emulator", Path("none"), Path("none"), kernel, kernel, (), "python", 0.0, cached=False)
