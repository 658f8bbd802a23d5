"""Tuned attention for Hugging Face's Transformers: after `register()`, `attn_implementation="autotune"` works."""

import autotune.torch  # noqa: F401 - says plainly that PyTorch is missing
from autotune.integrations.transformers_attention import register

__all__ = ["register"]
