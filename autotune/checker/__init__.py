"""`autotune check`: what is wrong or slow in a kernel, and what to change. Traced runs are `autotune.trace`."""
