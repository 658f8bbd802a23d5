"""`autotune.kernel` on a GPU: tensors where they lie, on the caller's stream, in graphs and from threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.answers.kernel import Kernel
from autotune.core.errors import LaunchError, UsageError
from autotune.ops.op import Arrays
from autotune.ops.registry import get_op

pytestmark = pytest.mark.gpu(pycuda=False)
FIELDS: dict[str, Any] = {"B": 2, "NH": 3, "T": 200, "HS": 64, "dtype": "fp16"}
OPS = ("forward", "backward")


def made(op: str, tmp_path: Path, **changes: Any) -> Kernel:
    return autotune.kernel(op=op, device="cuda", db=tmp_path / "none.db", **{**FIELDS, **changes})


def arrays(op: str, seed: int = 1, **changes: Any) -> tuple[Arrays, Arrays, dict[str, float]]:
    """Inputs, reference, and how far results may be from it."""
    problem = get_op(op).problem(**{**FIELDS, **changes})
    inputs = get_op(op).inputs(problem, seed)
    reference, rough = get_op(op).reference(problem, inputs), get_op(op).low_precision(problem, inputs)
    return inputs, reference, {name: 3 * np.abs(rough[name] - reference[name]).max() + 1e-4 for name in reference}


def check(results: dict[str, Any], reference: Arrays, bounds: dict[str, float]) -> None:
    for name, expected in reference.items():
        got = results[name].float().cpu().numpy() if hasattr(results[name], "cpu") else results[name]
        assert np.abs(got - expected).max() <= bounds[name], name


def on_gpu(inputs: Arrays) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {name: torch.from_numpy(array).cuda() for name, array in inputs.items()}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("side_stream", [False, True])
def test_pytorch_tensors_in_place(tmp_path: Path, op: str, side_stream: bool) -> None:
    torch = pytest.importorskip("torch")
    inputs, reference, bounds = arrays(op)
    kernel = made(op, tmp_path)
    stream = torch.cuda.Stream() if side_stream else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        tensors = on_gpu(inputs)
        tensors["q"] = tensors["q"].transpose(1, 2).contiguous().transpose(1, 2)  # other strides than k and v
        check(kernel(**tensors), reference, bounds)


@pytest.mark.parametrize("op", OPS)
def test_other_lengths(tmp_path: Path, op: str) -> None:
    kernel = made(op, tmp_path)
    for changes in ({"T": 77, "T_kv": 300}, {"B": 1, "NH": 8, "NH_kv": 2, "T": 129, "T_kv": 129}, {}):
        inputs, reference, bounds = arrays(op, **changes)
        check(kernel(**on_gpu(inputs)), reference, bounds)


@pytest.mark.parametrize("op", OPS)
def test_work_follows_the_stream_and_nobody_waits(tmp_path: Path, op: str) -> None:
    torch = pytest.importorskip("torch")
    inputs, reference, bounds = arrays(op)
    kernel = made(op, tmp_path)
    tensors = on_gpu(inputs)
    kernel(**tensors)
    late = {name: torch.full_like(tensor, torch.nan) for name, tensor in tensors.items()}
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000_000)  # about a second
        for name, tensor in late.items():
            tensor.copy_(tensors[name])
        results = kernel(**late)
        assert not stream.query()  # the call came back while its inputs were still NaN
        check(results, reference, bounds)


@pytest.mark.parametrize("op", OPS)
def test_captured_in_a_graph(tmp_path: Path, op: str) -> None:
    torch = pytest.importorskip("torch")
    kernel = made(op, tmp_path)
    first, second = arrays(op, 1), arrays(op, 2)
    tensors = on_gpu(first[0])
    kernel(**tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = kernel(**tensors)
    for inputs, reference, bounds in (second, first):
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(inputs[name]))
        for result in results.values():
            result.fill_(torch.nan)
        graph.replay()
        check(results, reference, bounds)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("own_streams", [False, True])
def test_threads(tmp_path: Path, op: str, own_streams: bool) -> None:
    """Threads that have not used CUDA before, on the default stream or each on its own."""
    torch = pytest.importorskip("torch")
    kernel = made(op, tmp_path)
    cases = [arrays(op, seed, T=200 + 8 * seed, T_kv=200 + 8 * seed) for seed in range(4)]
    inputs = [on_gpu(case[0]) for case in cases]
    torch.cuda.synchronize()
    together = threading.Barrier(4)

    def call(number: int) -> list[dict[str, Any]]:
        together.wait()
        stream = torch.cuda.Stream() if own_streams else torch.cuda.default_stream()
        with torch.cuda.stream(stream):
            results = [kernel(**inputs[number]) for _ in range(50)]
            stream.synchronize()
        return results

    with ThreadPoolExecutor(4) as pool:
        for (_, reference, bounds), results in zip(cases, pool.map(call, range(4)), strict=True):
            for result in results[::7]:
                check(result, reference, bounds)


@pytest.mark.parametrize("op", OPS)
def test_cupy(tmp_path: Path, op: str) -> None:
    cupy = pytest.importorskip("cupy")
    inputs, reference, bounds = arrays(op)
    kernel = made(op, tmp_path)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        results = kernel(**{name: cupy.asarray(array) for name, array in inputs.items()})
        stream.synchronize()
        assert all(isinstance(result, cupy.ndarray) for result in results.values())
        check({name: cupy.asnumpy(result).astype(np.float64) for name, result in results.items()}, reference, bounds)


@pytest.mark.parametrize("op", OPS)
def test_jax(tmp_path: Path, op: str) -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    inputs, reference, bounds = arrays(op)
    given = {name: jax.numpy.asarray(array).block_until_ready() for name, array in inputs.items()}
    results = made(op, tmp_path)(**given)
    pytest.importorskip("torch").cuda.synchronize()
    check({name: np.asarray(result) for name, result in results.items()}, reference, bounds)


@pytest.mark.parametrize("op", OPS)
def test_numpy_arrays_are_copied(tmp_path: Path, op: str) -> None:
    inputs, reference, bounds = arrays(op)
    check(made(op, tmp_path)(**inputs), reference, bounds)


def test_a_process_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, reference, bounds = arrays("forward")
    made("forward", tmp_path)(**inputs)
    monkeypatch.setenv("AUTOTUNE_NVCC", str(tmp_path / "none"))
    check(made("forward", tmp_path)(**inputs), reference, bounds)


def test_what_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    inputs = arrays("forward")[0]
    kernel, tensors = made("forward", tmp_path), on_gpu(inputs)
    with pytest.raises(UsageError, match="cannot be mixed"):
        kernel(q=tensors["q"], k=inputs["k"], v=inputs["v"])
    with pytest.raises(UsageError, match="dtype bfloat16; the kernel takes"):
        kernel(**{**tensors, "q": tensors["q"].bfloat16()})
    with pytest.raises((UsageError, LaunchError)):
        kernel(**tensors, out=torch.zeros(1, dtype=torch.float16, device="cuda").expand(tensors["q"].shape))
    check(kernel(**tensors), *arrays("forward")[1:])
