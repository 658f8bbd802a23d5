"""Mistakes planted in kernels by rule, and what notices them."""
