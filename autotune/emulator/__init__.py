"""Executes rendered kernels on a CPU.

`include/emulator` is what a kernel sees in the place of CUDA: one header a subject, all of them in `emulator.hpp`.
`include/cuda` stands in for CUDA's own headers that kernels include by name. `runtime` is compiled once and linked to
every kernel: fibers and their scheduler, memory against guard pages, faults, launches. `trace` is linked to traced
builds alone: it sees every access (docs/checker.md). `translation` rewrites the little of CUDA that no header can make
C++.
"""
