"""Attention and its gradients in PyTorch on a GPU: eager, compiled, in graphs, in models."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from autotune.torch import attention, scaled_dot_product_attention  # noqa: E402

pytestmark = pytest.mark.gpu(pycuda=False)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def qkv(dtype: Any, *, B: int = 2, NH: int = 4, NH_kv: int = 2, T: int = 300, HS: int = 64) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    shapes = ((B, T, NH, HS), (B, T, NH_kv, HS), (B, T, NH_kv, HS))
    q, k, v = (torch.randn(shape, dtype=dtype, device="cuda").transpose(1, 2).requires_grad_() for shape in shapes)
    return q, k, v


def all_of(call: Callable[..., Any], tensors: Sequence[Any], **options: Any) -> list[Any]:
    out = call(*tensors, **options)
    weights = torch.linspace(-1, 1, out.numel(), device="cuda").reshape(out.shape).to(out.dtype)
    return [out, *torch.autograd.grad(out, tensors, weights)]


def close(ours: list[Any], tensors: Sequence[Any], **options: Any) -> None:
    """Against float64, as near as PyTorch's own are, and a half again."""
    exact = all_of(
        functional.scaled_dot_product_attention, [t.detach().double().requires_grad_() for t in tensors], **options
    )
    theirs = all_of(functional.scaled_dot_product_attention, tensors, **options)
    for one, other, right in zip(ours, theirs, exact, strict=True):
        error, allowed = (one - right).abs().max().item(), (other - right).abs().max().item()
        assert error <= 3 * allowed + 1e-4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_eager(dtype: Any, causal: bool) -> None:
    tensors = qkv(dtype)
    options = {"is_causal": causal, "enable_gqa": True}
    close(all_of(scaled_dot_product_attention, tensors, **options), tensors, **options)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_compiled(mode: str) -> None:
    compiled = torch.compile(scaled_dot_product_attention, fullgraph=True, mode=mode)
    tensors = qkv(torch.bfloat16)
    options = {"is_causal": True, "enable_gqa": True}
    for _ in range(4):  # graphs are recorded after some calls
        ours = [result.clone() for result in all_of(compiled, tensors, **options)]
    close(ours, tensors, **options)
    torch._dynamo.reset()


def test_a_captured_training_step() -> None:
    tensors = qkv(torch.bfloat16)
    with torch.cuda.stream(torch.cuda.Stream()):
        all_of(attention, tensors, causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = all_of(attention, tensors, causal=True)
    for result in results:
        result.fill_(torch.nan)
    graph.replay()
    close(results, tensors, is_causal=True, enable_gqa=True)


def test_the_operators_keep_pytorchs_rules() -> None:
    q, k, v = qkv(torch.float16, T=40)
    torch.library.opcheck(torch.ops.autotune.attention_forward, (q, k, v, True, 0.125))


def test_autocast_and_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    tensors = qkv(torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        out = scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True)
        again = checkpoint(attention, *tensors, True, use_reentrant=False)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, again, atol=0, rtol=0)
    for one, other in zip(
        torch.autograd.grad(out.float().sum(), tensors), torch.autograd.grad(again.float().sum(), tensors), strict=True
    ):
        torch.testing.assert_close(one, other, atol=3e-2, rtol=2e-2)


def exactly(q: Any, k: Any, v: Any) -> list[Any]:
    """Attention and its gradients in float64, on memory of its own: not every attention of PyTorch's asks where
    tensors begin."""
    tensors = [tensor.detach().double().contiguous().requires_grad_() for tensor in (q, k, v)]
    return all_of(functional.scaled_dot_product_attention, tensors)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [72, 67])
@pytest.mark.parametrize("starts", [(3, 3, 3), (0, 1, 0), (2, 0, 0), (0, 0, 2), (1, 2, 3), (0, 0, 0)], ids=str)
def test_tensors_that_begin_anywhere(dtype: Any, width: int, starts: tuple[int, ...]) -> None:
    """Rows 72 elements apart that TMA would copy, but not from there, and 67 apart that it does not copy at all."""
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(1, 2, 64, width, dtype=dtype, device="cuda")[..., start : start + 64].requires_grad_()
        for start in starts
    )
    bound = 1e-4 if dtype == torch.float32 else 4e-3 if dtype == torch.float16 else 3e-2
    for one, right in zip(all_of(scaled_dot_product_attention, (q, k, v)), exactly(q, k, v), strict=True):
        assert (one - right).abs().max().item() <= bound


def test_gradients_that_begin_anywhere() -> None:
    torch.manual_seed(0)
    tensors = qkv(torch.bfloat16, NH_kv=4)
    padded = torch.randn(2, 4, 300, 72, dtype=torch.bfloat16, device="cuda")[..., 3:67]
    found = torch.autograd.grad(attention(*tensors), tensors, padded)
    expected = torch.autograd.grad(attention(*tensors), tensors, padded.contiguous())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "whisper"])
def test_transformers(name: str) -> None:
    pytest.importorskip("transformers")
    from autotune.transformers import register
    from tests.integrations.test_transformers import MODELS, results, same

    register()
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model, batch = make().cuda(), {key: value.cuda() for key, value in inputs().items()}
    same(results(model, "autotune", batch), results(model, "sdpa", batch), 1e-3)
