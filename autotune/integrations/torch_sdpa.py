"""PyTorch's `scaled_dot_product_attention` by tuned kernels, where they compute what is asked; else by PyTorch's."""

import logging
import math
import threading
from typing import Any

import torch
from torch.nn import functional

from autotune.answers.calls import TorchCall
from autotune.answers.kernel import remember
from autotune.integrations import torch_kernels as kernels
from autotune.integrations.torch_ops import (
    attention,
    head_size,
    is_plain,
    plain_attention,
    require_tensors,
    wants_gradients,
)

logger = logging.getLogger("autotune.torch")

_said: set[str] = set()
_lock = threading.Lock()
_reasons: dict[tuple[Any, ...], str | None] = {}
"""Why kernels do not compute attention of such tensors, by all that the answer depends on."""

_KNOWN: dict[Any, tuple[bool, float, TorchCall]] = {}
"""Mask, scale and kernel by what `_kind` says: in eager mode such a call costs one look-up in all."""


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """As `torch.nn.functional.scaled_dot_product_attention`: the same arguments, with the same meaning.

    `is_causal` aligns the mask top-left, as PyTorch does: query i sees keys 0 to i. Masks that PyTorch makes as
    `torch.nn.attention.bias.causal_lower_right` and `causal_upper_left` are computed without being made.

    Where kernels do not compute what is asked (other masks, dropout, elements of float64, …) PyTorch does, and the
    reason is logged once, by the logger `autotune.torch`.

    Raises:
        UsageError: query, key or value is no tensor of PyTorch's.
        AutotuneError: as `autotune.torch.attention`.
    """
    kind = None
    if attn_mask is None and not dropout_p and not torch.compiler.is_compiling():
        kind = _kind(query, key, value, is_causal, scale, enable_gqa)
        known = _KNOWN.get(kind)
        if known is not None:
            return plain_attention(query, key, value, *known)
    require_tensors(query, key, value)
    lower_right = False
    if attn_mask is not None and not is_causal:
        alignment = _alignment(attn_mask, query, key)
        if alignment is not None:
            attn_mask, is_causal, lower_right = None, True, alignment == "lower right"
    reason = why_not(query, key, value, attn_mask, dropout_p, scale, enable_gqa)
    if reason is not None:
        say_once(reason)
        mask = _lower_right(query, key) if lower_right else attn_mask
        return functional.scaled_dot_product_attention(
            query, key, value, mask, dropout_p, is_causal and not lower_right, scale=scale, enable_gqa=enable_gqa
        )
    if query.dim() == 3:
        q, k, v = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        return _aligned(q, k, v, is_causal, lower_right, scale).squeeze(1)
    if kind is not None and (not is_causal or query.shape[2] == key.shape[2]):
        scale = 1.0 / math.sqrt(query.shape[3]) if scale is None else scale
        result = attention(query, key, value, is_causal, scale)
        call = kernels.ready(query, key, value, is_causal, scale)
        if call is not None:
            remember(_KNOWN, kind, (is_causal, scale, call))
        return result
    return _aligned(query, key, value, is_causal, lower_right, scale)


def _kind(query: Any, key: Any, value: Any, is_causal: bool, scale: float | None, enable_gqa: bool) -> Any:
    """All that decides what is computed and how, but for addresses; None where more is to be asked."""
    if not is_plain(query, key, value) or query.is_nested or key.is_nested or value.is_nested:
        return None
    gradients = wants_gradients(query, key, value)
    if torch._C._is_any_autocast_enabled() or (gradients and torch.are_deterministic_algorithms_enabled()):
        return None
    return (enable_gqa, gradients, *kernels.kind_of(is_causal, scale, query, key, value))


def _aligned(q: Any, k: Any, v: Any, causal: bool, lower_right: bool, scale: float | None) -> Any:
    """Attention whose causal mask is aligned top-left, by kernels that align it bottom-right."""
    T, T_kv = q.shape[2], k.shape[2]
    if not causal or lower_right or T_kv == T:
        return attention(q, k, v, causal, scale)
    if T_kv > T:  # nobody sees the later keys
        return attention(q, k[:, :, :T], v[:, :, :T], True, scale)
    first = attention(q[:, :, :T_kv], k, v, True, scale)
    return torch.cat([first, attention(q[:, :, T_kv:], k, v, False, scale)], dim=2)


def why_not(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, scale: float | None, enable_gqa: bool
) -> str | None:
    """Why kernels do not compute this; None where they do."""
    if attn_mask is not None:
        return "attn_mask is given"
    if dropout_p > 0:
        return f"dropout_p={dropout_p}"
    if scale is not None and not scale > 0:
        return f"scale={scale} is not above 0"
    for tensor in (query, key, value):
        if tensor.is_nested or not _is_usual(tensor):
            return f"a tensor is a {type(tensor).__name__}"
    return _why_not_tensors(query, key, value, enable_gqa)


def _why_not_tensors(query: Any, key: Any, value: Any, enable_gqa: bool) -> str | None:
    """In eager mode asked once a kind: many questions cost what a launch does."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(query.device.type):
        return _why_not_shapes(query, key, value, enable_gqa) or _why_not_elements(query, key, value)
    gradients = wants_gradients(query, key, value)
    kind = (
        query.shape, key.shape, value.shape, query.dtype, key.dtype, value.dtype, query.device, key.device,
        value.device, enable_gqa, gradients, gradients and torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    if kind not in _reasons:
        found = _why_not_shapes(query, key, value, enable_gqa) or _why_not_elements(query, key, value)
        remember(_reasons, kind, found)
        return found
    return _reasons[kind]


def _why_not_shapes(query: Any, key: Any, value: Any, enable_gqa: bool) -> str | None:
    if query.dim() not in (3, 4) or key.dim() != query.dim() or value.dim() != query.dim():
        return f"tensors have {query.dim()}, {key.dim()} and {value.dim()} dimensions, not 4 or 3"
    if key.shape[:-1] != value.shape[:-1] or query.shape[0] != key.shape[0] or head_size(query) != key.shape[-1]:
        return "query and key differ in batch or head size, or key and value in batch, heads or length"
    if query.dim() == 4 and query.shape[1] != key.shape[1] and not (enable_gqa and query.shape[1] % key.shape[1] == 0):
        return "query and key differ in heads"
    return None


def _why_not_elements(query: Any, key: Any, value: Any) -> str | None:
    """What of dtypes, devices and sizes no kernel takes. Plain steps: not every version traces operations of sets."""
    device, kind = query.device, query.device.type
    if kind not in ("cuda", "cpu") or key.device != device or value.device != device:
        return f"tensors are on {device}, {key.device} and {value.device}"
    dtypes = [query.dtype, key.dtype, value.dtype]
    if torch.is_autocast_enabled(kind):
        dtypes = [torch.get_autocast_dtype(kind)]
    dtype = dtypes[0]
    if dtype not in kernels.NAMES or any(other != dtype for other in dtypes):
        return f"element types are {', '.join(dict.fromkeys(map(str, dtypes)))}"
    if query.numel() == 0 or key.numel() == 0 or value.numel() == 0:
        return "a tensor is empty"
    gradients = wants_gradients(query, key, value)
    if gradients and torch.are_deterministic_algorithms_enabled():
        return "deterministic algorithms are asked for, and gradients may be added up in an order left to chance"
    sizes = head_size(query), head_size(value)
    reason: str | None = _why_infeasible(kind, device.index or 0, kernels.NAMES[dtype], *sizes, gradients)
    return reason


def _is_usual(tensor: Any) -> bool:
    """PyTorch's own tensors, also those that it traces with; not, for example, sharded ones."""
    kind = type(tensor)
    return kind in (torch.Tensor, torch.nn.Parameter) or kind.__module__.startswith("torch._subclasses")


def _alignment(mask: Any, query: Any, key: Any) -> str | None:
    """`lower right` or `upper left` of a mask that PyTorch made so for these lengths."""
    from torch.nn.attention.bias import CausalBias, CausalVariant

    if not isinstance(mask, CausalBias) or (mask.seq_len_q, mask.seq_len_kv) != (query.shape[-2], key.shape[-2]):
        return None
    return "lower right" if mask.variant == CausalVariant.LOWER_RIGHT else "upper left"


def _lower_right(query: Any, key: Any) -> Any:
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right(query.shape[-2], key.shape[-2])


def say_once(reason: str) -> None:
    """Log why PyTorch computes attention; not while a graph is being made, which cannot log."""
    if torch.compiler.is_compiling() or reason in _said:
        return
    with _lock:
        if reason not in _said:
            _said.add(reason)
            logger.warning("PyTorch's attention is used, not a tuned kernel: %s (said once)", reason)


def _ask(kind: str, index: int, dtype: str, HS: int, HS_v: int, gradients: bool) -> str | None:
    """Asked while a graph is made, not traced into it."""
    return kernels.why_infeasible(kernels.device_name(kind, index), dtype, HS, HS_v, gradients)


_why_infeasible: Any = torch.compiler.assume_constant_result(_ask)
