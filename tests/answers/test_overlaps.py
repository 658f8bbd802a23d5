"""Outputs that overlap, or are read-only, are refused before anything runs; those that only lie between are not."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import autotune
from autotune.answers import arrays as seen
from autotune.answers import dlpack
from autotune.answers.kernel import Kernel
from autotune.answers.overlaps import Apart, Layout, overlaps_itself, share
from autotune.core.errors import UsageError
from autotune.ops.op import Arrays
from autotune.ops.registry import get_op
from tests.driver_double import EmulatedDriver, OnGpu, emulated

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "T": 40, "HS": 32, "dtype": "fp32"}
SHAPE = (1, 2, 40, 32)


def offsets(layout: Layout) -> list[int]:
    """Every byte of every element."""
    indices = product(*map(range, layout.shape))
    starts = (sum(i * stride for i, stride in zip(index, layout.strides, strict=True)) for index in indices)
    return [start + byte for start in starts for byte in range(layout.size)]


def any_layout(random: np.random.Generator, size: int) -> Layout:
    axes = int(random.integers(0, 4))
    shape = tuple(int(n) for n in random.integers(1, 5, axes))
    return Layout(shape, tuple(int(step) * size for step in random.integers(-9, 10, axes)), size)


def test_what_strides_say_is_what_every_element_says() -> None:
    """Layouts at random: zero, negative and interleaved strides."""
    random = np.random.default_rng(1)
    verdicts = set()
    for _ in range(600):
        size = int(random.choice([1, 2, 4]))
        one, other = any_layout(random, size), any_layout(random, size)
        mine = offsets(one)
        assert overlaps_itself(one) == (len({*mine}) < len(mine)), one
        distance = int(random.integers(-60, 60))
        theirs = {distance + byte for byte in offsets(other)}
        right = not theirs.isdisjoint(mine)
        assert share(one, other, distance) == right, (one, other, distance)
        looks = Apart({"a": one, "b": other}, {"b"})
        if right:
            with pytest.raises(UsageError, match="a and b overlap in memory"):
                looks.check([1000, 1000 + distance])
            assert not looks.seen
        else:
            looks.check([1000, 1000 + distance])
            assert looks.seen == {(1000, 1000 + distance)}
        verdicts.add((right, len({*mine}) < len(mine)))
    assert len(verdicts) == 4


def test_inputs_may_overlap() -> None:
    layout = Layout((4,), (2,), 2)
    Apart({"q": layout, "k": layout, "out": layout}, {"out"}).check([64, 66, 128])


class Here:
    """A kernel and what it is called with, in the host's memory or as if on a GPU; nothing can run."""

    def __init__(self, op: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = autotune.kernel(op, device="cpu", db=tmp_path / "none.db", template="flash_simt", **FIELDS)
        self.driver = EmulatedDriver()
        self.kernel: Kernel = emulated(made, self.driver) if where == "gpu" else made
        self._put: Any = OnGpu if where == "gpu" else lambda array: array
        problem = made.best.problem
        self.inputs: Arrays = get_op(op).inputs(problem, 1)
        self.expected: Arrays = get_op(op).reference(problem, self.inputs)
        self.outputs: Arrays = {n: np.zeros(a.shape, np.float32) for n, a in self.expected.items()}
        monkeypatch.setattr(self.kernel, "_plan", self._never)
        self._undo = monkeypatch.undo

    @staticmethod
    def _never(*_: object) -> None:
        raise AssertionError("it was about to run")

    def call(self, **changes: NDArray[Any]) -> None:
        self.kernel(**{name: self._put(array) for name, array in {**self.inputs, **self.outputs, **changes}.items()})

    def let_run(self) -> None:
        self._undo()


@pytest.fixture(params=["host", "gpu"])
def forward(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here("forward", request.param, tmp_path, monkeypatch)


@pytest.fixture(params=["host", "gpu"])
def backward(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here("backward", request.param, tmp_path, monkeypatch)


def test_results_that_overlap_one_another(backward: Here) -> None:
    memory = np.zeros(2 * 2 * 40 * 32, np.float32)
    whole = memory[: 2 * 40 * 32].reshape(SHAPE)
    shifted = memory[32 : 32 + 2 * 40 * 32].reshape(SHAPE)
    for given, names in (
        ({"dq": whole, "dk": whole}, "dq and dk"),
        ({"dq": whole, "dk": shifted}, "dq and dk"),
        ({"dk": shifted, "dv": whole}, "dk and dv"),
    ):
        with pytest.raises(UsageError, match=f"{names} overlap in memory"):
            backward.call(**given)


def test_results_that_overlap_an_input(forward: Here) -> None:
    with pytest.raises(UsageError, match="k and out overlap in memory"):
        forward.call(out=forward.inputs["k"])
    with pytest.raises(UsageError, match="v and out overlap in memory"):
        forward.call(out=forward.inputs["v"][:, :, ::-1])


@pytest.mark.parametrize("strides", [(0, 0, 0, 4), (0, 0, 128, 4), (10240, 5120, 124, 4), (0, 0, 4, 4)])
def test_results_that_overlap_themselves(forward: Here, strides: tuple[int, ...]) -> None:
    out = as_strided(np.zeros(4096, np.float32), SHAPE, strides)
    with pytest.raises(UsageError, match=r"out has strides .*: results need elements of their own"):
        forward.call(out=out)


def test_results_that_lie_between_one_another(backward: Here) -> None:
    """Also where a call of the same layout has been made, and then one overlaps."""
    backward.let_run()
    memory = np.full((1, 40, 2, 3 * 32), np.nan, np.float32).transpose(0, 2, 1, 3)
    slices = {name: memory[..., 32 * i : 32 * (i + 1)] for i, name in enumerate(("dq", "dk", "dv"))}
    for _ in range(2):
        memory[...] = np.nan
        backward.call(**slices)
        for name, result in slices.items():
            np.testing.assert_allclose(result, backward.expected[name], atol=2e-5)
    memory[...] = 7
    launched = len(backward.driver.launched)
    with pytest.raises(UsageError, match="dq and dk overlap in memory"):
        backward.call(**{**slices, "dk": memory[..., 16:48]})
    assert len(backward.driver.launched) == launched
    assert (memory == 7).all()


def test_results_in_read_only_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here("forward", "host", tmp_path, monkeypatch)
    kept = here.outputs["out"].copy()
    kept.flags.writeable = False
    for out in (kept, np.broadcast_to(np.zeros(1, np.float32), SHAPE)):
        with pytest.raises(UsageError, match="out is read-only"):
            here.call(out=out)
    here.let_run()
    here.inputs["q"].flags.writeable = False
    here.call()


class Kept(OnGpu):
    """It says that it must not be written."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        said = OnGpu(self.array).__cuda_array_interface__
        return {**said, "data": (said["data"][0], True)}


class Jax(Kept):
    """JAX says so of everything, also of what it makes for results."""


Jax.__module__ = "jaxlib._jax"


def test_results_in_arrays_that_a_gpu_s_library_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here("forward", "gpu", tmp_path, monkeypatch)
    here.let_run()
    given = {name: OnGpu(array) for name, array in {**here.inputs, **here.outputs}.items()}
    here.kernel(**given)
    launched = len(here.driver.launched)
    with pytest.raises(UsageError, match="out is read-only"):  # also where such a layout is known
        here.kernel(**{**given, "out": Kept(here.outputs["out"])})
    assert len(here.driver.launched) == launched
    here.kernel(**{**given, "q": Kept(here.inputs["q"])})
    assert seen.describe(Kept(here.inputs["q"])).read_only
    assert not seen.describe(Jax(here.inputs["q"])).read_only


class OnlyDlpack:
    """A NumPy array of a library with no other interface; before version 1, DLPack could not say what is read-only."""

    def __init__(self, array: NDArray[Any], *, old: bool = False) -> None:
        self._array, self._old = array, old

    def __dlpack__(self, **asked: Any) -> Any:
        if self._old and "max_version" in asked:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self._array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy has DLPack 1.0 from 2.1 on")
def test_dlpack_says_what_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    for old in (False, True):
        said = seen.describe(OnlyDlpack(array, old=old))
        assert (said.address, said.shape, said.strides) == (array.ctypes.data, (3, 2), (4, 2))
        assert not said.read_only
    array.flags.writeable = False
    assert seen.describe(OnlyDlpack(array)).read_only
    here = Here("forward", "host", tmp_path, monkeypatch)
    here.outputs["out"].flags.writeable = False
    kept: Any = OnlyDlpack(here.outputs["out"])
    with pytest.raises(UsageError, match="out is read-only"):
        here.call(out=kept)
