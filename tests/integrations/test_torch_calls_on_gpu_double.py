"""The quick way of PyTorch's tensors through `autotune.kernel`, with an emulated driver behind it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")

from torch.nn import functional  # noqa: E402

import autotune  # noqa: E402
from autotune.answers import calls  # noqa: E402
from autotune.answers import kernel as kernels  # noqa: E402
from autotune.core.errors import UsageError  # noqa: E402
from autotune.integrations import torch_kernels, torch_sdpa  # noqa: E402
from autotune.ops.registry import get_op  # noqa: E402
from autotune.torch import attention  # noqa: E402
from tests.driver_double import EmulatedDriver, emulated  # noqa: E402

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "NH_kv": 1, "T": 40, "T_kv": 40, "HS": 32, "dtype": "fp32"}
OTHERS: dict[str, dict[str, Any]] = {"bthd": {"T": 33, "T_kv": 50, "B": 2}, "packed": {"T": 33, "T_kv": 33, "B": 2}}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> EmulatedDriver:
    """Tensors in the host's memory count as those of GPU 0; PyTorch's current stream is 7."""
    monkeypatch.setattr(kernels, "is_on_device", lambda _: True)
    monkeypatch.setattr(calls, "raw_stream", lambda gpu: 7)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    return EmulatedDriver()


def case(op: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    problem = get_op(op).problem(**{**FIELDS, **changes})
    inputs = get_op(op).inputs(problem, 1)
    return {name: torch.from_numpy(array) for name, array in inputs.items()}, get_op(op).reference(problem, inputs)


def close(results: dict[str, Any], expected: dict[str, Any]) -> None:
    assert [*results] == [*expected]
    for name, array in expected.items():
        np.testing.assert_allclose(results[name].numpy(), array, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("layout", ["bthd", "packed"])
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_results_are_made_or_given(driver: EmulatedDriver, op: str, layout: str) -> None:
    fields = {**FIELDS, "layout": layout}
    kernel = emulated(autotune.kernel(op, device="cpu", db="/nonexistent/none.db", **fields), driver)
    for changes in ({}, OTHERS[layout], {}):
        tensors, expected = case(op, layout=layout, **changes)
        for _ in range(2):  # looked up, then known
            results = kernel(**tensors)
            close(results, expected)
        specs = {t.name: t for t in get_op(op).tensors(get_op(op).problem(**{**fields, **changes}))}
        assert all(result.stride() == specs[name].strides for name, result in results.items())
        some = {[*expected][-1]: torch.full_like(results[[*expected][-1]], torch.nan)}
        given = kernel(**tensors, **some)
        close(given, expected)
        assert all(given[name] is tensor for name, tensor in some.items())
    assert len(kernel._torch_calls) == 4
    assert {stream for _, stream in driver.launched} == {7}
    assert driver.memory == {}  # scratch memory is PyTorch's


def test_numbers_are_part_of_what_is_known(driver: EmulatedDriver) -> None:
    kernel = emulated(autotune.kernel("forward", device="cpu", db="/nonexistent/none.db", **FIELDS), driver)
    tensors, expected = case("forward")
    usual = get_op("forward").scalars(kernel.best.problem)["scale"]
    for factor in (2.0, 4.0, 2.0, 0.5):
        close(kernel(**{**tensors, "q": tensors["q"] * factor}, scale=usual / factor), expected)
    assert len(kernel._torch_calls) == 3


def test_a_stream_of_the_callers(driver: EmulatedDriver) -> None:
    kernel = emulated(autotune.kernel("forward", device="cpu", db="/nonexistent/none.db", **FIELDS), driver)
    for stream in (3, 4):
        kernel(**case("forward")[0], stream=stream)
        assert driver.launched[-1][1] == stream


def test_threads(driver: EmulatedDriver) -> None:
    kernel = emulated(autotune.kernel("backward", device="cpu", db="/nonexistent/none.db", **FIELDS), driver)
    cases = [case("backward", T=20 + number, T_kv=20 + number) for number in range(4)]
    together = threading.Barrier(4)

    def call(number: int) -> list[Any]:
        together.wait()
        return [kernel(**cases[number][0]) for _ in range(6)]

    with ThreadPoolExecutor(4) as pool:
        for (_, expected), results in zip(cases, pool.map(call, range(4)), strict=True):
            for result in results:
                close(result, expected)


def use(family: str, driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this family are the kernels of `autotune.torch`, and none is known yet."""

    def kernel(op: str, **fields: Any) -> Any:
        return emulated(autotune.kernel(op, template=family, db="/nonexistent/none.db", **fields), driver)

    monkeypatch.setattr(torch_kernels, "kernel", kernel)
    monkeypatch.setattr(torch_kernels, "_KERNELS", {})
    monkeypatch.setattr(torch_kernels, "_READY", {})
    monkeypatch.setattr(torch_sdpa, "_KNOWN", {})


@pytest.mark.parametrize("family", ["flash_wgmma", "flash_mma"])
def test_attention_of_tensors_that_begin_anywhere(
    driver: EmulatedDriver, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where TMA does not take a tensor a copy is taken; `out` and gradients are those of float64 in any case."""

    use(family, driver, monkeypatch)
    for starts, width in (((3, 3, 3), 72), ((0, 8, 0), 72), ((0, 0, 1), 72), ((2, 0, 0), 67), ((0, 0, 0), 64)):
        torch.manual_seed(0)
        tensors = [
            torch.randn(1, 2, 40, width, dtype=torch.float16)[..., start : start + 64].requires_grad_()
            for start in starts
        ]
        dout = torch.randn(1, 2, 40, 72, dtype=torch.float16)[..., starts[0] : starts[0] + 64]
        out = attention(*tensors)
        exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        right = functional.scaled_dot_product_attention(*exact)
        found = [out, *torch.autograd.grad(out, tensors, dout)]
        expected = [right, *torch.autograd.grad(right, exact, dout.double())]
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.double(), other, atol=8e-3, rtol=0)


def test_pytorchs_call_is_looked_up_once(driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a kind of call is not asked again; whatever changes what is computed is another kind."""
    use("flash_wgmma", driver, monkeypatch)
    call: Any = torch_sdpa.scaled_dot_product_attention
    q, k, v, dout = (torch.randn(1, 4, 40, 64, dtype=torch.float16) for _ in range(4))
    trained = [tensor.detach().requires_grad_() for tensor in (q, k, v)]

    def results() -> list[Any]:
        out = call(*trained, is_causal=True)
        return [call(q, k, v, is_causal=True), call(q, k, v, scale=0.5), out, *torch.autograd.grad(out, trained, dout)]

    first = results()
    assert len(torch_sdpa._KNOWN) == 3
    with monkeypatch.context() as nobody_asks:
        nobody_asks.setattr(torch_sdpa, "why_not", None)
        for again, one in zip(results(), first, strict=True):
            torch.testing.assert_close(again, one, atol=0, rtol=0)
    shorter = [tensor[:, :, :24] for tensor in (q, k, v)]
    fewer = [tensor[:, ::2] for tensor in (k, v)]
    for tensors, options in (
        (shorter, {"is_causal": True}),
        ([q[:, :, :24], k, v], {"is_causal": True}),
        ([q, *fewer], {"enable_gqa": True}),
        ([q, k, v], {"is_causal": True, "scale": 0.5}),
        ([tensor.bfloat16() for tensor in (q, k, v)], {"is_causal": True}),
    ):
        for _ in range(2):
            right = functional.scaled_dot_product_attention(*(tensor.double() for tensor in tensors), **options)
            torch.testing.assert_close(call(*tensors, **options).double(), right, atol=3e-2, rtol=0)
    with pytest.raises(RuntimeError, match=r"heads|must match|broadcast|size"):
        call(q, *fewer)
    kept = len(torch_sdpa._KNOWN)
    assert kept == 7  # the mask of unequal lengths is aligned otherwise than kernels align it
    with torch.autocast("cpu", torch.bfloat16):
        assert call(q, k, v, is_causal=True).dtype == torch.bfloat16
    assert len(torch_sdpa._KNOWN) == kept


def test_a_kind_of_call_is_looked_up_once(driver: EmulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    use("flash_wgmma", driver, monkeypatch)
    shape = (1, 2, 40, 64)
    q, k, v, dout = (torch.randn(shape, dtype=torch.float16) for _ in range(4))

    def both(scale: float, q: Any) -> list[Any]:
        first, second, third = tensors = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        out = attention(first, second, third, scale=scale)
        return [out, *torch.autograd.grad(out, tensors, dout)]

    first, other = both(0.1, q), both(0.2, q)
    assert len(torch_kernels._READY) == 4
    monkeypatch.setattr(torch_kernels, "kernel_for", None)
    for again, expected in ((both(0.1, q), first), (both(0.2, q), other)):
        for one, right in zip(again, expected, strict=True):
            torch.testing.assert_close(one, right, atol=0, rtol=0)
    moved = torch.zeros(1, 2, 40, 72, dtype=torch.float16)[..., 3:67].copy_(q)
    with pytest.raises(TypeError):  # of another kind: it is looked up
        both(0.1, moved)
    with pytest.raises(UsageError, match="of one dtype"):
        attention(q, k.float(), v)
    shifted = torch.zeros(q.numel() + 1, dtype=torch.float16)[1:].view(shape).copy_(q)
    with pytest.raises(TypeError):  # of a known kind, but where TMA does not take it
        both(0.1, shifted)


def test_results_that_overlap(driver: EmulatedDriver) -> None:
    """Refused at the first call of a kind, and after one of that kind that was right; slices of one tensor are not."""
    kernel = emulated(autotune.kernel("backward", device="cpu", db="/nonexistent/none.db", **FIELDS), driver)
    tensors, expected = case("backward", NH_kv=2)
    slices = torch.full((1, 2, 40, 3 * 32 + 8), torch.nan)
    shape = (1, 2, 40, 32)
    for _ in range(2):
        whole = torch.empty(shape)
        spread = dict(zip(("dq", "dk", "dv"), (slices[..., i : i + 32] for i in (0, 32, 64)), strict=True))
        close(kernel(**tensors, **spread), expected)
        launched = len(driver.launched)
        with pytest.raises(UsageError, match="dq and dk overlap in memory"):
            kernel(**tensors, **{**spread, "dk": slices[..., 8:40]})
        with pytest.raises(UsageError, match="dq and dk overlap in memory"):
            kernel(**tensors, dq=whole, dk=whole)
        with pytest.raises(UsageError, match="k and dv overlap in memory"):
            kernel(**tensors, dv=tensors["k"])
        with pytest.raises(UsageError, match=r"dq has strides .*: results need elements of their own"):
            kernel(**tensors, dq=torch.zeros(1, 1, 1, 32).expand(shape))
        assert len(driver.launched) == launched
    same = dict.fromkeys(("q", "k", "v"), tensors["q"])
    kernel(**{**tensors, **same}, dq=whole)  # inputs may be one tensor


def test_arrays_that_are_no_tensors() -> None:
    array = np.zeros((1, 2, 40, 32), np.float32)
    tensor = torch.from_numpy(array)
    for call in (attention, torch_sdpa.scaled_dot_product_attention):
        for place in range(3):
            given: list[Any] = [array if place == number else tensor for number in range(3)]
            with pytest.raises(UsageError, match="attention takes PyTorch's tensors, not ndarray"):
                call(given[0], given[1], given[2])
