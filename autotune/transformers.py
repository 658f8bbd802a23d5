"""Tuned attention for Hugging Face's Transformers: after `register()`, `attn_implementation="autotune"` works."""

from autotune.integrations.transformers_attention import register

__all__ = ["register"]
