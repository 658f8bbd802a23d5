"""The ladder: published versions of attention's kernels, tuned one after the other."""
