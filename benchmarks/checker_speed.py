"""How long the emulator takes for a candidate: `python -m benchmarks.checker_speed [--dtype fp16] [OP/FAMILY …]`.

The family's default configuration on the default problem, in the op's reduced form, as `autotune check` and a search
without a GPU run it: build and run of a traced check, and of a verification. Wall seconds, and in brackets the CPU
seconds of this process and of the compilers it waited for. Builds take one core, runs two: with nothing else to do,
two cores need the build's and half of the run's CPU seconds. What is built once a machine (the emulator itself, about
10 s) is left out, what is computed once a problem (the reference) is told apart.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.checker.target import find_target
from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench
from autotune.emulator.building import build_emulator
from autotune.emulator.support import emulator_support
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.ops.expected import Expectation, expect
from autotune.ops.registry import get_op
from autotune.trace.task import TraceTask
from autotune.trace.tracing import trace_plan

THREADS = 2
_FAMILIES = ("forward/flash_simt", "backward/flash_simt")
_CHECK, _VERIFICATION = ("traced build", "traced run"), ("build", "verification")


@dataclass(frozen=True)
class Cost:
    """Seconds of one step."""

    wall: float
    cpu: float


def main() -> None:
    """Print a row a family and dtype."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", action="append", choices=("fp16", "bf16", "fp32"), help="[default: fp16 and fp32]")
    parser.add_argument("--device", default="h200")
    parser.add_argument("families", nargs="*", default=_FAMILIES)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds: wall (CPU)")
    columns = ("traced build", "traced run", "check in all", "build", "verification", "in all", "reference, once")
    print(f"| family | dtype | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for family in arguments.families:
        for dtype in arguments.dtype or ("fp16", "fp32"):
            with tempfile.TemporaryDirectory() as folder:
                _print(family, dtype, dict(_steps(family, dtype, arguments.device, Path(folder))))


def _print(family: str, dtype: str, costs: dict[str, Cost]) -> None:
    check, verification = (_added([costs[name] for name in names]) for names in (_CHECK, _VERIFICATION))
    cells = [*(costs[name] for name in _CHECK), check, *(costs[name] for name in _VERIFICATION), verification]
    shown = [f"{cost.wall:.1f} ({cost.cpu:.1f})" for cost in (*cells, costs["reference"])]
    print(f"| {family} | {dtype} | {' | '.join(shown)} |", flush=True)


def _added(costs: list[Cost]) -> Cost:
    return Cost(sum(cost.wall for cost in costs), sum(cost.cpu for cost in costs))


def _steps(name: str, dtype: str, device: str, folder: Path) -> Iterator[tuple[str, Cost]]:
    op_name, _, family = name.partition("/")
    target = find_target(op_name, family, {}, None, device, folder / "none.db", {"dtype": dtype})
    op, problem, spec = get_op(op_name), target.executed, target.spec
    task = TraceTask(target.op, target.template.path, problem, target.candidate.values, spec)
    source = render(target.template, problem, dict(task.config), spec)
    cache = BuildCache(folder)
    for traced in (True, False):
        emulator_support(cache.root, traced)
    reference: list[Expectation] = []
    yield "reference", _cost(lambda: reference.append(expect(op, problem, 1)))
    images = reference[0].images
    yield "traced build", _cost(lambda: _build(source, cache, True))
    tensors = op.tensors(problem)
    artifact = _build(source, cache, True)
    yield "traced run", _cost(lambda: _ok(trace_plan(artifact, source.plan, images, tensors, threads=THREADS).complete))
    yield "build", _cost(lambda: _build(source, cache, False))
    with closing(CpuDevice(spec, THREADS)) as cpu:
        bench, plain = Bench(cpu, op, reference[0]), _build(source, cache, False)
        yield "verification", _cost(lambda: _ok(bench.evaluate(plain, source.plan, None).outcome == Outcome.OK))


def _build(source: KernelSource, cache: BuildCache, traced: bool) -> Any:
    return build_emulator(source, cache, traced=traced)


def _ok(right: bool) -> None:
    if not right:
        raise SystemExit("a run failed: nothing was measured")


def _cost(step: Callable[[], Any]) -> Cost:
    wall, cpu = time.perf_counter(), _cpu_seconds()
    step()
    return Cost(time.perf_counter() - wall, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
