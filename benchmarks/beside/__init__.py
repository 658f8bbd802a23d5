"""The same kernels through Kernel Tuner and through autotune, on one GPU."""
