"""Small hand-made kernel sources for tests that need no template."""

from autotune.core.candidate import make_candidate
from autotune.core.plan import LaunchPlan
from autotune.core.problem import Problem
from autotune.families.source import Include, KernelSource

EMPTY_PLAN = LaunchPlan((), ())


def kernel_source(
    body: str, *, header: str = "// header\n", includes: tuple[Include, ...] = (), plan: LaunchPlan = EMPTY_PLAN
) -> KernelSource:
    """A source as `render` makes them, from its body alone."""
    return KernelSource(
        candidate=make_candidate("handmade", "0" * 16, {"BLOCK": 32}),
        problem=Problem("copy", (("T", 8), ("dtype", "fp32"))),
        header=header,
        body=body,
        includes=includes,
        plan=plan,
    )
