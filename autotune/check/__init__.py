"""The checker: a kernel runs on the emulator with every memory access traced.

`check` and `check_all` are the doors; `tracing.trace_plan` traces a plan, `api.trace_candidate` a candidate, in this
process. `emulator/trace` is the part that runs beside the kernel.
"""

from autotune.check.api import Checked, check, check_all
from autotune.check.hints import Hint
from autotune.check.model import Finding, KernelTrace, LineCounters, Trace

__all__ = ["Checked", "Finding", "Hint", "KernelTrace", "LineCounters", "Trace", "check", "check_all"]
