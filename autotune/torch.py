"""Tuned attention for PyTorch: `from autotune.torch import scaled_dot_product_attention`.

The operators are `torch.ops.autotune.attention_forward` and `torch.ops.autotune.attention_backward`.
"""

from autotune.integrations.torch_ops import attention
from autotune.integrations.torch_sdpa import scaled_dot_product_attention

__all__ = ["attention", "scaled_dot_product_attention"]
