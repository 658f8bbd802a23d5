"""`autotune.kernel` as on a GPU: parameters, streams, scratch memory and threads, with an emulated driver behind it."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autotune
from autotune.answers.kernel import Kernel
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import DeviceMissing, LaunchError, UsageError
from autotune.ops.op import Arrays
from autotune.ops.registry import get_op
from tests.driver_double import EmulatedDriver, OnGpu, emulated

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "NH_kv": 1, "T": 40, "T_kv": 40, "HS": 32, "dtype": "fp32"}


@pytest.fixture
def driver() -> EmulatedDriver:
    return EmulatedDriver()


def made(op: str, driver: EmulatedDriver, template: str = "flash_simt") -> Kernel:
    fields = {**FIELDS, **({"dtype": "fp16", "T": 64, "T_kv": 64} if template == "flash_wgmma" else {})}
    return emulated(autotune.kernel(op, device="cpu", db="/nonexistent/none.db", template=template, **fields), driver)


def arrays_of(op: str, seed: int, **changes: Any) -> tuple[Arrays, Arrays]:
    problem = get_op(op).problem(**{**FIELDS, **changes})
    inputs = get_op(op).inputs(problem, seed)
    return inputs, get_op(op).reference(problem, inputs)


def empty(kernel: Kernel, shapes: Arrays) -> dict[str, OnGpu]:
    dtypes = {"lse": np.dtype(np.float32)}
    main = numpy_dtype(kernel.best.problem.dtype)
    return {n: OnGpu(np.full(a.shape, np.nan, dtypes.get(n, main))) for n, a in shapes.items()}


def place(inputs: Arrays, stream: int | None = None) -> dict[str, OnGpu]:
    return {name: OnGpu(array, stream) for name, array in inputs.items()}


def close(results: dict[str, Any], expected: Arrays) -> None:
    for name, array in expected.items():
        np.testing.assert_allclose(results[name].array, array, atol=2e-5, err_msg=name)


def test_any_lengths_and_strides(driver: EmulatedDriver) -> None:
    for op in ("forward", "backward"):
        kernel = made(op, driver)
        for changes in ({}, {"T": 33, "T_kv": 50}, {"B": 2, "NH": 3, "NH_kv": 3, "T": 17, "T_kv": 17}):
            inputs, expected = arrays_of(op, 1, **changes)
            strided = {n: np.ascontiguousarray(np.swapaxes(a, 1, 2)).swapaxes(1, 2) for n, a in inputs.items()}
            strided["lse"] = inputs.get("lse", inputs["q"])
            given = strided if op == "backward" else {n: strided[n] for n in inputs}
            outputs = empty(kernel, expected)
            results = kernel(**place(given), **outputs)
            assert list(results) == list(kernel.outputs)
            assert all(results[name] is outputs[name] for name in outputs)
            close(results, expected)


def test_the_stream_of_the_arrays_or_of_the_caller(driver: EmulatedDriver) -> None:
    kernel = made("forward", driver)
    inputs, expected = arrays_of("forward", 1)
    for given, asked, used in ((None, None, 0), (1, None, 0), (77, None, 77), (77, 5, 5)):
        driver.launched.clear()
        driver.followed.clear()
        kernel(**place(inputs, given), **empty(kernel, expected), stream=asked)
        assert {stream for _, stream in driver.launched} == {used}
        assert driver.followed == ([(5, 77)] if asked else [])


def test_scratch_memory_is_one_a_stream(driver: EmulatedDriver) -> None:
    kernel = made("backward", driver)
    inputs, expected = arrays_of("backward", 1)
    for stream in (1, 2, 1, 2):
        close(kernel(**place(inputs), **empty(kernel, expected), stream=stream), expected)
    assert len(driver.memory) == 2


@pytest.mark.parametrize("streams", [(1, 1, 1, 1), (1, 2, 3, 4)])
def test_threads_on_one_stream_and_on_several(driver: EmulatedDriver, streams: tuple[int, ...]) -> None:
    kernel = made("backward", driver)
    cases = [arrays_of("backward", seed) for seed in range(4)]
    together = threading.Barrier(4)

    def call(case: tuple[Arrays, Arrays], stream: int) -> list[dict[str, NDArray[Any]]]:
        together.wait()
        results = []
        for _ in range(4):
            outputs = empty(kernel, case[1])
            kernel(**place(case[0]), **outputs, stream=stream)
            results.append({name: output.array for name, output in outputs.items()})
        return results

    with ThreadPoolExecutor(4) as pool:
        for case, results in zip(cases, pool.map(call, cases, streams), strict=True):
            for result in results:
                close({name: OnGpu(array) for name, array in result.items()}, case[1])


def test_tensor_maps_are_made_once_an_address(driver: EmulatedDriver) -> None:
    kernel = made("forward", driver, "flash_wgmma")
    inputs, expected = arrays_of("forward", 1, **kernel.best.problem.fields)
    given, outputs = place(inputs), empty(kernel, expected)
    kernel(**given, **outputs)
    made_first = driver.encoded
    assert made_first == 4
    kernel(**given, **outputs)
    assert driver.encoded == made_first
    moved = {**given, "q": OnGpu(inputs["q"].copy())}
    kernel(**moved, **outputs)
    assert driver.encoded == made_first + 1
    np.testing.assert_allclose(outputs["out"].array, expected["out"], atol=2e-3)
    padded = np.zeros(inputs["q"].size + 1, np.float16)[1:].reshape(inputs["q"].shape)
    with pytest.raises(LaunchError, match="q: TMA cannot copy this tensor: it must begin at a multiple of 16 bytes"):
        kernel(**{**given, "q": OnGpu(padded)}, **outputs)


@pytest.mark.parametrize("template", ["flash_simt", "flash_wgmma"])
def test_threads_that_have_not_used_cuda(driver: EmulatedDriver, template: str) -> None:
    """Their first calls, on tensors of which no tensor map has been made, and those that come after."""
    kernel = made("forward", driver, template)
    bound = 2e-3 if template == "flash_wgmma" else 2e-5
    for seed in (1, 2):
        inputs, expected = arrays_of("forward", seed, **kernel.best.problem.fields)
        outputs = empty(kernel, expected)
        with ThreadPoolExecutor(1) as pool:
            for _ in range(2):
                pool.submit(kernel, **place(inputs), **outputs).result()
        np.testing.assert_allclose(outputs["out"].array, expected["out"], atol=bound)


def test_another_context_of_the_thread(driver: EmulatedDriver) -> None:
    kernel = made("forward", driver)
    inputs, expected = arrays_of("forward", 1)
    driver.refusals.append(400)
    close(kernel(**place(inputs), **empty(kernel, expected)), expected)
    driver.refusals.append(700)
    with pytest.raises(LaunchError, match=r"kernel \w+: status 700"):
        kernel(**place(inputs), **empty(kernel, expected))
    close(kernel(**place(inputs), **empty(kernel, expected)), expected)


def test_host_arrays_go_there_and_back(driver: EmulatedDriver) -> None:
    kernel = made("backward", driver)
    inputs, expected = arrays_of("backward", 1)
    for name, result in kernel(**inputs).items():
        np.testing.assert_allclose(result, expected[name], atol=2e-5)
    assert driver.memory == {}


def test_scale(driver: EmulatedDriver) -> None:
    kernel = made("forward", driver)
    inputs, _ = arrays_of("forward", 1)
    usual = get_op("forward").scalars(kernel.best.problem)["scale"]
    _, expected = arrays_of("forward", 1)
    scaled = {**inputs, "q": inputs["q"] * np.float32(4)}
    results = kernel(**place(scaled), **empty(kernel, expected), scale=usual / 4)
    close(results, expected)
    for wrong in (0.0, -1.0, float("nan"), "much"):
        with pytest.raises(UsageError, match="scale="):
            kernel(**place(scaled), **empty(kernel, expected), scale=wrong)


class Cupy(OnGpu):
    """What all versions' arrays of CuPy have."""

    device = nullcontext()

    def transpose(self, axes: list[int]) -> "Cupy":
        return Cupy(self.array.transpose(axes))


Cupy.__module__ = "cupy._core"


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_results_that_cupy_makes(driver: EmulatedDriver, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out as the problem says, on CuPy's current stream."""
    current = SimpleNamespace(get_current_stream=lambda gpu: SimpleNamespace(ptr=9))
    library = SimpleNamespace(cuda=current, empty=lambda shape, dtype: Cupy(np.full(shape, np.nan, dtype)))
    monkeypatch.setitem(sys.modules, "cupy", library)
    kernel = made(op, driver)
    inputs, expected = arrays_of(op, 1)
    results = kernel(**{name: Cupy(array) for name, array in inputs.items()})
    assert all(isinstance(result, Cupy) for result in results.values())
    close(results, expected)
    specs = {tensor.name: tensor for tensor in get_op(op).tensors(kernel.best.problem)}
    for name, result in results.items():
        places = zip(result.array.shape, result.array.strides, specs[name].strides, strict=True)
        assert all(nbytes == 4 * stride for extent, nbytes, stride in places if extent > 1)
    assert {stream for _, stream in driver.launched} == {9}


def test_what_is_refused(driver: EmulatedDriver) -> None:
    kernel = made("forward", driver)
    inputs, expected = arrays_of("forward", 1)
    outputs = empty(kernel, expected)
    with pytest.raises(UsageError, match="cannot be mixed"):
        kernel(q=inputs["q"], k=OnGpu(inputs["k"]), v=OnGpu(inputs["v"]))
    with pytest.raises(UsageError, match="pass arrays for the outputs as well: out, lse"):
        kernel(**place(inputs))
    with pytest.raises(UsageError, match=r"dtype float16; the kernel takes .* and float32"):
        kernel(**{**place(inputs), "q": OnGpu(inputs["q"].astype(np.float16))}, **outputs)
    shared = OnGpu(np.broadcast_to(np.zeros(1, np.float32), expected["out"].shape))
    with pytest.raises(UsageError, match="results need elements of their own"):
        kernel(**place(inputs), **{**outputs, "out": shared})
    with pytest.raises(DeviceMissing, match="device='cuda'"):
        autotune.kernel("forward", device="cpu", db="/nonexistent/none.db", **FIELDS)(**place(inputs))


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_rows_that_tma_does_not_take(driver: EmulatedDriver, op: str) -> None:
    """Heads of an odd size: right behind one another in each layout, from an odd element on, and rows of their own."""
    fields: dict[str, Any] = {"B": 1, "NH": 8, "NH_kv": 8, "T": 33, "T_kv": 33, "HS": 19, "dtype": "fp16"}
    where: dict[str, Any] = {"device": "cpu", "db": "/nonexistent/none.db"}
    kernel = emulated(autotune.kernel(op, template="flash_wgmma", **where, **fields), driver)
    inputs, expected = arrays_of(op, 1, **fields)
    by_row = {
        name: np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2) if array.ndim == 4 else array
        for name, array in inputs.items()
    }
    shifted = {
        name: np.concatenate([[0], array.swapaxes(1, 2).ravel()]).astype(array.dtype)[1:].reshape(1, 33, 8, 19)
        for name, array in inputs.items()
        if array.ndim == 4
    }
    odd = {**inputs, **{name: array.swapaxes(1, 2) for name, array in shifted.items()}}
    for given, in_place in ((by_row, op == "forward"), (odd, op == "forward"), (inputs, False)):
        before, outputs = driver.encoded, empty(kernel, expected)
        kernel(**place(given), **outputs)
        for name, array in expected.items():
            np.testing.assert_allclose(outputs[name].array, array, atol=2e-2, err_msg=name)
        assert (driver.encoded - before == 3 * 8) is in_place  # maps, of the tensors themselves and not of packed rows
