"""The operators `autotune::attention_forward` and `…_backward`: what torch.compile, graphs, vmap and autograd see.

In eager mode their dispatch through Python costs more than the kernels' launch. `attention` goes around it where
nothing listens: no tracing, no transform, no mode, no subclass of tensors. The arithmetic is the same.
"""

import math
from typing import Any

import torch

from autotune.core.arguments import require_flags
from autotune.core.errors import UsageError
from autotune.integrations import torch_kernels as kernels

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def attention(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> Any:
    """softmax(scale · q kᵀ) v by tuned kernels, forward and backward.

    Under autocast the tensors are cast as those of PyTorch's attention are. Gradients of gradients are not supported.

    Args:
        q: (B, NH, T, HS), fp16, bf16 or fp32; any strides.
        k: (B, NH_kv, T_kv, HS), NH divisible by NH_kv.
        v: (B, NH_kv, T_kv, HS_v).
        causal: query i sees keys up to i + T_kv - T: the last query sees all of them.
        scale: by default 1/sqrt(HS); above 0.

    Returns:
        (B, NH, T, HS_v), laid out in memory as `q` is. Rows that see no key are 0.

    Raises:
        UsageError: tensors that do not go together, or a scale that is not positive.
        AutotuneError: as `autotune.kernel` and its calls.
    """
    require_tensors(q, k, v)
    if torch.is_autocast_enabled(q.device.type):
        wanted = torch.get_autocast_dtype(q.device.type)
        q, k, v = q.to(wanted), k.to(wanted), v.to(wanted)
    if scale is None:
        scale = 1.0 / math.sqrt(head_size(q))
    if torch.compiler.is_compiling():
        return _forward_op(q, k, v, causal, scale)[0]
    require_numbers(causal, scale)
    if not is_plain(q, k, v):
        kernels.require(q, k, v, scale)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return _Transformed.apply(q, k, v, causal, scale)[0]
        return _forward_op(q, k, v, causal, scale)[0]
    return plain_attention(q, k, v, causal, scale, None)


def require_tensors(*given: Any) -> None:
    """Raise UsageError for what is no tensor of PyTorch's, and does not act as one."""
    for tensor in given:
        if not isinstance(tensor, torch.Tensor) and not hasattr(tensor, "__torch_function__"):
            raise UsageError(
                f"attention takes PyTorch's tensors, not {type(tensor).__name__}: torch.from_numpy makes one of an "
                "array of NumPy's, and autotune.kernel takes arrays of other libraries"
            )


def require_numbers(causal: object, scale: object) -> None:
    """Raise UsageError for what is neither true nor false, and for what is no number."""
    if type(causal) is not bool:
        require_flags(causal=causal)
    if not hasattr(scale, "__float__"):  # tensors of one element have it
        raise UsageError(f"scale={scale!r} must be a number above 0, or None for 1/sqrt(HS)")


def plain_attention(q: Any, k: Any, v: Any, causal: bool, scale: float, call: Any) -> Any:
    """`attention` in eager mode of tensors that `is_plain` says are; `call`: of `torch_kernels.ready`, where known."""
    if wants_gradients(q, k, v):
        return _Attention.apply(q, k, v, causal, scale, call)
    return kernels.forward(q, k, v, causal, scale, call)[0]


def head_size(tensor: Any) -> int:
    """The last extent; in a graph of unknown lengths this one is fixed, as kernels are made for it."""
    HS: int = tensor.shape[-1]
    return len(range(HS)) if torch.compiler.is_compiling() else HS


def wants_gradients(q: Any, k: Any, v: Any) -> Any:
    """Whether autograd records what is done with these tensors."""
    return torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)


def is_plain(*tensors: Any) -> bool:
    """Whether nothing but autograd would see an operator called with these tensors."""
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(type(tensor) in _PLAIN for tensor in tensors) and not torch._C._len_torch_function_stack()


class _Attention(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The quick way with gradients."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool, scale: float, call: Any) -> Any:
        out, lse = kernels.forward(q, k, v, causal, scale, call)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    def backward(ctx: Any, dout: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        if torch.is_grad_enabled() or not is_plain(dout, q, k, v):  # create_graph: the operator says that it cannot
            return (*_backward_op(dout, q, k, v, out, lse, ctx.causal, ctx.scale), None, None, None)
        return (*kernels.backward(dout, q, k, v, out, lse, ctx.causal, ctx.scale), None, None, None)


class _Transformed(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """For torch.func: operators' gradients do not go through its transforms, those of a function of this form do."""

    generate_vmap_rule = False

    @staticmethod
    def forward(q: Any, k: Any, v: Any, causal: bool, scale: float) -> tuple[Any, Any]:
        result: tuple[Any, Any] = _forward_op(q, k, v, causal, scale)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _save(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, dout: Any, _: Any) -> Any:
        if dout is None:
            return None, None, None, None, None
        return (*_TransformedGradients.apply(dout, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None)

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> Any:
        return _over_batches(_Transformed.apply, 3)(info, dims, *args)


class _TransformedGradients(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The backward pass for torch.func, which asks even where nobody wants it whether it could be differentiated."""

    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any) -> tuple[Any, Any, Any]:
        result: tuple[Any, Any, Any] = _backward_op(*args)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # noqa: ARG004
        raise RuntimeError("autotune's attention has no gradients of gradients")

    @staticmethod
    def vmap(info: Any, dims: Any, *args: Any) -> Any:
        return _over_batches(_TransformedGradients.apply, 6)(info, dims, *args)


def _forward_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return kernels.forward(q, k, v, causal, scale)


def _backward_kernel(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
    causal: bool, scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    return kernels.backward(dout, q, k, v, out, lse, causal, scale)


def _forward_shapes(q: Any, k: Any, v: Any, *_: Any) -> tuple[Any, Any]:  # noqa: ARG001
    return kernels.empty_out(q, v), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


def _backward_shapes(dout: Any, q: Any, k: Any, v: Any, *_: Any) -> tuple[Any, Any, Any]:  # noqa: ARG001
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dout: Any, _: Any) -> Any:
    if dout is None:
        return None, None, None, None, None
    return (*_backward_op(dout, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None)


def _over_batches(op: Any, tensors: int) -> Any:
    """vmap's rule: its axis joins the batches."""

    def rule(info: Any, dims: Any, *args: Any) -> Any:
        size = info.batch_size
        joined = []
        for array, axis in zip(args[:tensors], dims, strict=False):
            front = array.expand(size, *array.shape) if axis is None else array.movedim(axis, 0)
            joined.append(front.reshape(-1, *front.shape[2:]))
        results = op(*joined, *args[tensors:])
        apart = tuple(result.reshape(size, -1, *result.shape[1:]) for result in results)
        return apart, (0,) * len(apart)

    return rule


_custom_op: Any = torch.library.custom_op
_backward_op: Any = _custom_op("autotune::attention_backward", _backward_kernel, mutates_args=())
_backward_op.register_fake(_backward_shapes)
_backward_op.register_vmap(_over_batches(_backward_op, 6))
_forward_op: Any = _custom_op("autotune::attention_forward", _forward_kernel, mutates_args=())
_forward_op.register_fake(_forward_shapes)
_forward_op.register_autograd(_gradients, setup_context=_save)
_forward_op.register_vmap(_over_batches(_forward_op, 3))
