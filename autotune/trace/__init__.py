"""Traced runs: every memory access of an emulated kernel is seen, counted, and judged."""
