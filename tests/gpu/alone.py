"""Whether others use the GPU: what is measured of all of it, energy above all, is then not that of a test alone."""

import ctypes
import time

from autotune.gpus.nvml import OK, ManagedGpu

PATIENCE_S = 5.0
"""A GPU's utilisation is told of up to the last second: that long what this process has done may still show."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def others_at_work(found: ManagedGpu, patience_s: float = PATIENCE_S) -> str:
    """Who else works on a GPU on which this process does nothing now; empty where nobody does.

    Processes that are there and idle do not count. Waits until the GPU has rested for as long as NVML looks back.
    """
    deadline = time.monotonic() + patience_s
    percent = _utilization(found)
    while percent and time.monotonic() < deadline:
        time.sleep(0.05)
        percent = _utilization(found)
    if not percent:
        return ""
    count = ctypes.c_uint(0)
    found.call("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), None)  # refuses, and tells the length
    return (
        f"others use this GPU: it is {percent} % busy while this test does nothing, with {count.value} processes on it"
    )


def _utilization(found: ManagedGpu) -> int:
    """Per cent of the last moments in which a kernel ran; 0 where this is not told."""
    rates = _Utilization()
    return rates.gpu if found.call("nvmlDeviceGetUtilizationRates", ctypes.byref(rates)) == OK else 0
