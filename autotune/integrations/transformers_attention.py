"""Tuned attention in Hugging Face's Transformers, as one of its attention implementations.

Two things are registered: the attention itself, and how masks are made for it. Without the second one Transformers
makes no masks at all, and padding would be attended to. Masks are made as for `sdpa`: none where causality says it
all, else a mask of booleans, which PyTorch's attention then honours in place of a kernel.
"""

from typing import Any

from autotune.core.errors import UsageError
from autotune.integrations.torch_sdpa import say_once, scaled_dot_product_attention

NAME = "autotune"

_REFUSED = {
    "softcap": "capped scores",
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "indices": "sparse attention",
    "block_indices": "sparse attention",
    "cache": "paged attention",
}
"""What changes the result and comes as an argument: PyTorch's attention would not compute it either."""


def register() -> None:
    """Make `attn_implementation="autotune"` known to Transformers; doing it again changes nothing.

    Raises:
        UsageError: Transformers is not installed, or older than 4.53, which has no interface for masks.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise UsageError(f"Transformers 4.53 or later is needed: pip install -U transformers ({error})") from error
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """Attention as models call it.

    Args:
        module: the layer; its `is_causal` counts where the argument is not given.
        query: (B, NH, T, HS).
        key: (B, NH_kv, T_kv, HS).
        value: (B, NH_kv, T_kv, HS_v).
        attention_mask: (B, 1 or NH, T, T_kv), or None where nothing but causality hides keys.
        dropout: of the weights.
        scaling: of the scores; None: 1/sqrt(HS).
        is_causal: of whole sequences; a single query sees all keys.
        options: of other kinds of attention. Those that this one would have to compute are refused.

    Returns:
        (B, T, NH, HS_v), and no weights.

    Raises:
        UsageError: capped scores, attention sinks, sparse or paged attention.
    """
    for name, what in _REFUSED.items():
        if options.get(name) is not None:
            raise UsageError(f'attn_implementation="{NAME}" does not compute {what} ({name}); use "eager"')
    if attention_mask is not None or options.get("position_bias") is not None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        say_once("Transformers gives a mask (padding, a window, a cache) or a bias of positions")
        result: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **options
        )
        return result
    T, T_kv = query.shape[2], key.shape[2]
    causal = T > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if causal and T_kv > T:  # a cache with room: its later keys are not there yet
        key, value = key[:, :, :T], value[:, :, :T]
    grouped = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(query, key, value, None, dropout, causal, scaling, grouped)
    return out.transpose(1, 2).contiguous(), None
