"""Tuned attention in PyTorch on the emulator: against PyTorch's own, with all that wraps an operator."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")

from torch.nn import functional  # noqa: E402
from torch.nn.attention import bias  # noqa: E402

from autotune.core.errors import UsageError  # noqa: E402
from autotune.integrations import torch_sdpa  # noqa: E402
from autotune.torch import attention, scaled_dot_product_attention  # noqa: E402

BOUND = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1.5e-1}


@pytest.fixture(autouse=True)
def own_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "none.db"))
    torch.manual_seed(0)
    torch_sdpa._said.clear()
    yield
    torch._dynamo.reset()


def qkv(
    dtype: Any = torch.float32, *, B: int = 1, NH: int = 2, NH_kv: int = 2, T: int = 24, T_kv: int = 24
) -> tuple[Any, Any, Any]:
    sizes = ((NH, T), (NH_kv, T_kv), (NH_kv, T_kv))
    q, k, v = (torch.randn(B, n, length, 32, dtype=dtype, requires_grad=True) for n, length in sizes)
    return q, k, v


def gradients(out: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).reshape(out.shape)
    return tuple(torch.autograd.grad((out * weights).sum(), tensors))


def same(ours: Any, theirs: Any, tensors: Sequence[Any], bound: float = 1e-4) -> None:
    """Results and gradients."""
    for one, other in zip((ours, *gradients(ours, tensors)), (theirs, *gradients(theirs, tensors)), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, atol=bound, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_grouped_heads_and_dtypes(dtype: Any) -> None:
    tensors = qkv(dtype, NH=4)
    ours = scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True)
    theirs = functional.scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=True)
    same(ours, theirs, tensors, BOUND[dtype])


@pytest.mark.parametrize("lengths", [(24, 24), (17, 29), (29, 17), (1, 20)])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths_and_alignment(lengths: tuple[int, int], causal: bool) -> None:
    """PyTorch aligns top-left: as it does, also where the number of keys is another one."""
    tensors = qkv(T=lengths[0], T_kv=lengths[1])
    ours = scaled_dot_product_attention(*tensors, is_causal=causal, scale=0.3)
    same(ours, functional.scaled_dot_product_attention(*tensors, is_causal=causal, scale=0.3), tensors)


@pytest.mark.parametrize("aligned", [bias.causal_lower_right, bias.causal_upper_left])
@pytest.mark.parametrize("lengths", [(17, 29), (29, 17)])
def test_causal_masks_that_pytorch_makes(
    aligned: Any, lengths: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    tensors = qkv(T=lengths[0], T_kv=lengths[1])
    mask = aligned(*lengths)
    ours = scaled_dot_product_attention(*tensors, attn_mask=mask)
    allowed = torch.ones(lengths, dtype=torch.bool).tril(lengths[1] - lengths[0] if "lower" in str(aligned) else 0)
    theirs = functional.scaled_dot_product_attention(*tensors, attn_mask=allowed)
    same(ours, torch.nan_to_num(theirs), tensors) if lengths[0] < lengths[1] else torch.testing.assert_close(
        ours, torch.nan_to_num(theirs), atol=1e-4, rtol=0
    )
    assert caplog.text == ""


def test_results_lie_as_queries_do() -> None:
    packed = torch.randn(2, 24, 3, 2, 32, requires_grad=True)
    q, k, v = packed.transpose(1, 3).unbind(2)  # views of a fused projection
    for tensors in ((q, k, v), qkv(B=2)):
        out = attention(*tensors, causal=True)
        assert out.stride() == torch.empty_like(tensors[0]).stride()
    ours, theirs = attention(q, k, v, True), functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    same(ours, theirs, [packed])


@pytest.mark.parametrize("empty", [{"B": 0}, {"T": 0}, {"T_kv": 0}, {"T": 0, "T_kv": 0}], ids=str)
def test_of_empty_tensors_nothing_is_computed(empty: dict[str, int]) -> None:
    """Without queries there is no result, without keys it is 0; so are the gradients, as PyTorch's."""
    tensors = qkv(**empty)
    for attend in (attention, scaled_dot_product_attention):
        same(attend(*tensors), functional.scaled_dot_product_attention(*tensors), tensors)


def test_three_dimensions_and_broadcast_gradients() -> None:
    tensors = [tensor.detach()[:, 0].requires_grad_() for tensor in qkv(B=3)]
    ours = scaled_dot_product_attention(*tensors)
    theirs = functional.scaled_dot_product_attention(*tensors)
    for one, other in zip(
        torch.autograd.grad(ours.sum(), tensors), torch.autograd.grad(theirs.sum(), tensors), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


def unsupported() -> dict[str, tuple[Sequence[Any], dict[str, Any], str]]:
    broadcast = [torch.randn(batch, 2, 8, 32) for batch in (2, 1, 1)]
    return {
        "mask": (qkv(), {"attn_mask": torch.ones(24, 24).tril().bool()}, "attn_mask is given"),
        "dropout": (qkv(), {"dropout_p": 1e-9}, "dropout_p=1e-09"),
        "scale": (qkv(), {"scale": -0.5}, "scale=-0.5 is not above 0"),
        "broadcast": (broadcast, {}, "differ in batch or head size"),
        "float64": ([tensor.double() for tensor in qkv()], {}, "element types are torch.float64"),
        "dimensions": ([tensor[None] for tensor in qkv()], {}, "tensors have 5, 5 and 5 dimensions"),
        "empty": (qkv(T=0), {}, "a tensor is empty"),
        "head size": ([torch.randn(1, 2, 8, 5000) for _ in range(3)], {}, "5000"),
    }


@pytest.mark.parametrize("case", [*unsupported()])
def test_pytorch_computes_the_rest_and_says_why_once(case: str, caplog: pytest.LogCaptureFixture) -> None:
    tensors, options, reason = unsupported()[case]
    with caplog.at_level(logging.WARNING, "autotune.torch"):
        for _ in range(2):
            torch.testing.assert_close(
                scaled_dot_product_attention(*tensors, **options),
                functional.scaled_dot_product_attention(*tensors, **options),
            )
    assert len(caplog.records) == 1
    assert reason in caplog.text


def test_deterministic_training_is_left_to_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        scaled_dot_product_attention(*qkv())
        assert "deterministic algorithms are asked for" in caplog.text
    finally:
        torch.use_deterministic_algorithms(False)


def test_errors_are_those_of_pytorch_or_say_what_goes() -> None:
    q, k, v = qkv(NH=3)
    with pytest.raises(RuntimeError):
        scaled_dot_product_attention(q, k, v)
    with pytest.raises(UsageError, match=r"NH divisible by NH_kv.*got q \(1, 3, 24, 32\)"):
        attention(q, k, v)
    with pytest.raises(UsageError, match="scale=-1"):
        attention(k, k, v, scale=-1.0)
    with pytest.raises(UsageError, match=r"attention of torch\.float64: kernels take torch\.float16"):
        attention(k.double(), k.double(), v.double())


def test_the_operators_keep_pytorchs_rules() -> None:
    tensors = qkv(T=5, T_kv=5)
    torch.library.opcheck(torch.ops.autotune.attention_forward, (*tensors, True, 0.2))
    plain = [tensor.detach() for tensor in tensors]
    out, lse = torch.ops.autotune.attention_forward(*plain, True, 0.2)
    given = (torch.randn_like(out), *plain, out, lse, True, 0.2)
    torch.library.opcheck(torch.ops.autotune.attention_backward, given)


@pytest.mark.parametrize("transposed", [False, True])
def test_values_of_another_size(transposed: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Rows of the result lie as those of the queries do; in a graph, too."""
    q, k, v = (torch.randn(1, *((24, 2) if transposed else (2, 24)), size) for size in (48, 48, 32))
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    tensors = [tensor.transpose(1, 2) for tensor in leaves] if transposed else leaves
    mine: Any = scaled_dot_product_attention
    pytorchs: Any = functional.scaled_dot_product_attention
    ours = mine(*tensors, is_causal=True)
    same(ours, pytorchs(*tensors, is_causal=True), leaves)
    assert ours.stride() == ((24 * 2 * 32, 32, 2 * 32, 1) if transposed else (2 * 24 * 32, 24 * 32, 32, 1))
    torch.library.opcheck(torch.ops.autotune.attention_forward, (*tensors, True, 0.2))
    if transposed:
        compiled: Any = torch.compile(mine, fullgraph=True, backend="aot_eager")
        theirs = pytorchs(*tensors, is_causal=True)
        same(compiled(*tensors, is_causal=True), theirs, leaves)
    assert "PyTorch's attention is used" not in caplog.text


def test_the_operator_and_the_quick_way_agree() -> None:
    tensors = qkv()
    operator = torch.ops.autotune.attention_forward(*tensors, True, 32**-0.5)[0]
    same(attention(*tensors, causal=True), operator, tensors, 1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_graph_breaks(dynamic: bool) -> None:
    def model(q: Any, k: Any, v: Any) -> Any:
        return scaled_dot_product_attention(q * 2, k, v, is_causal=True, enable_gqa=True).sin()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for length in (24, 20):
        tensors = qkv(NH=4, T=length, T_kv=length)
        same(compiled(*tensors), model(*tensors), tensors, 1e-5)


def traced() -> dict[str, tuple[Sequence[Any], dict[str, Any]]]:
    """What the way to a kernel, or to PyTorch's attention, depends on."""
    ways: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {
        name: (tensors, options) for name, (tensors, options, _) in unsupported().items() if name != "broadcast"
    }
    ways |= {
        "plain": (qkv(), {}),
        "bf16": (qkv(torch.bfloat16), {}),
        "without gradients": ([tensor.detach() for tensor in qkv()], {"is_causal": True}),
        "scale": (qkv(), {"scale": 0.3}),
        "heads": (qkv(NH=4), {"enable_gqa": True}),
        "fewer keys": (qkv(T_kv=17), {"is_causal": True}),
        "more keys": (qkv(T=17), {"is_causal": True}),
        "three dimensions": ([tensor[:, 0] for tensor in qkv()], {"is_causal": True}),
        "columns apart": ([torch.randn(1, 2, 32, 24).transpose(2, 3) for _ in range(3)], {}),
        "lower right": (qkv(T=17, T_kv=29), {"attn_mask": bias.causal_lower_right(17, 29)}),
    }
    return ways


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", [*traced()])
def test_every_way_is_traced(case: str, backend: str) -> None:
    tensors, options = traced()[case]

    def model(q: Any, k: Any, v: Any) -> Any:
        return scaled_dot_product_attention(q, k, v, **options)

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(*tensors), model(*tensors), atol=1e-5, rtol=0)


def test_autocast() -> None:
    tensors = qkv()
    with torch.autocast("cpu", torch.bfloat16):
        ours = scaled_dot_product_attention(*tensors)
        theirs = functional.scaled_dot_product_attention(*tensors)
        assert ours.dtype == torch.bfloat16
        compiled = torch.compile(scaled_dot_product_attention, fullgraph=True, backend="aot_eager")(*tensors)
    torch.testing.assert_close(ours, compiled, atol=0, rtol=0)
    same(ours, theirs, tensors, BOUND[torch.bfloat16])


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    tensors = qkv()
    ours = checkpoint(attention, *tensors, True, use_reentrant=reentrant)
    same(ours, attention(*tensors, True), tensors, 1e-6) if not reentrant else ours.sum().backward()
    assert reentrant is False or all(tensor.grad is not None for tensor in tensors)


def test_vmap_and_transforms() -> None:
    q, k, v = (tensor.detach() for tensor in qkv(B=2))
    many = torch.randn(3, *q.shape)
    got = torch.vmap(attention, in_dims=(0, None, None))(many, k, v)
    torch.testing.assert_close(got, torch.stack([attention(one, k, v) for one in many]), atol=1e-5, rtol=0)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, True).square().sum()

    each = [
        torch.autograd.grad(loss(one, k, v), one)[0] for one in (many[i].clone().requires_grad_() for i in range(3))
    ]
    torch.testing.assert_close(torch.func.grad(loss)(many[0], k, v), each[0], atol=1e-5, rtol=0)
    together = torch.vmap(torch.func.grad(loss), in_dims=(0, None, None))(many, k, v)
    torch.testing.assert_close(together, torch.stack(each), atol=1e-5, rtol=0)
    leaf = many.clone().requires_grad_()
    torch.vmap(loss, in_dims=(0, None, None))(leaf, k, v).sum().backward()
    torch.testing.assert_close(leaf.grad, torch.stack(each), atol=1e-5, rtol=0)


def test_gradients_of_gradients_are_refused() -> None:
    tensors = qkv()
    (dq, *_) = torch.autograd.grad(attention(*tensors).sum(), tensors, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        torch.autograd.grad(dq.sum(), tensors)


def test_backward_in_the_threads_of_autograd_and_of_the_caller() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def train(seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        q, k, v = (torch.randn(1, 2, 16 + seed, 32, generator=generator, requires_grad=True) for _ in range(3))
        ours = [gradients(attention(q, k, v, True), (q, k, v)) for _ in range(3)]
        return ours, gradients(functional.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v))

    with ThreadPoolExecutor(4) as pool:
        for ours, theirs in pool.map(train, range(4)):
            for result in ours:
                for one, other in zip(result, theirs, strict=True):
                    torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


def test_sharded_modules(tmp_path: Any) -> None:
    """FSDP's hooks gather the weights before attention's forward pass and before its backward pass."""
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    class Block(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)

        def forward(self, x: Any, attend: Any) -> Any:
            q, k, v = (t.unflatten(-1, (2, 32)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            return self.out(attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        x, block = torch.randn(1, 12, 64), Block()
        block(x, functional.scaled_dot_product_attention).sum().backward()
        expected = [parameter.grad.clone() for parameter in block.parameters()]
        block.zero_grad()
        sharded = fully_shard(block, mesh=mesh)
        sharded(x, scaled_dot_product_attention).sum().backward()
        for parameter, gradient in zip(sharded.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad.full_tensor(), gradient, atol=1e-4, rtol=0)
    finally:
        distributed.destroy_process_group()
