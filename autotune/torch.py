"""Tuned attention for PyTorch: `from autotune.torch import scaled_dot_product_attention`.

The operators are `torch.ops.autotune.attention_forward` and `torch.ops.autotune.attention_backward`.
"""

try:
    import torch as _torch  # noqa: F401 - before what needs it, so that its absence is said plainly
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("autotune.torch needs PyTorch 2.6 or later: pip install torch", name="torch") from error

from autotune.integrations.torch_ops import attention
from autotune.integrations.torch_sdpa import scaled_dot_product_attention

__all__ = ["attention", "scaled_dot_product_attention"]
