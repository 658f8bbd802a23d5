"""Where the seconds go that the device's process spends on a candidate of a search.

    python -m benchmarks.device_seconds --op backward --T 1024
    python -m benchmarks.device_seconds --op backward --T 1024 --beside 16   # while so many sources are compiled

The families' starts are judged one after the other as in a search: run, compared in full, run again over other values,
timed. A line tells the medians over all that are right, in milliseconds: how long one took from the first to the last
step, and what of it the main thread spent in which. `compare` is what the device finds by itself and the copies that it
keeps, `download` what is left for the host to see; `waited` is what is left: plans, and the host's own comparisons.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.outcome import Outcome
from autotune.core.plan import LaunchPlan
from autotune.devices.comparison_tables import comparison_source
from autotune.devices.factory import choose_device
from autotune.devices.measure import Bench
from autotune.devices.protocol import Device, TimingBudget
from autotune.emulator.building import EmulatorRequest
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.traits import traits_of
from autotune.ops.expected import expectations
from autotune.tuning.choose import choose_families, choose_subject
from autotune.tuning.lane import TRIAL_ERROR

STEPS = ("allocate", "load", "upload", "poison", "run", "compare", "download", "equals", "time")
_COMPARING = frozenset(comparison_source().plan.kernels)


class Timed:
    """Counts the seconds of each kind of step of a device, which stays what it is: who asks what it can do is told."""

    def __init__(self, device: Device) -> None:
        self.device, self.seconds = device, defaultdict[str, float](float)
        for name in STEPS:
            if hasattr(device, name):
                setattr(device, name, self._timed(name, getattr(device, name)))

    def _timed(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return step(*arguments, **named)
            finally:
                ours = name == "run" and _COMPARING.issuperset(arguments[1].kernels)
                self.seconds["compare" if ours else name] += time.perf_counter() - begun

        return timed


def judged(
    bench: Bench, seconds: Timed, programs: Sequence[tuple[Artifact, LaunchPlan, bool]], *, timed: bool, rounds: int
) -> list[dict[str, float]]:
    """Seconds by kind of step, and of all as `whole`, of each verdict that was `ok`. The first round warms up."""
    found: list[dict[str, float]] = []
    for turn in range(1 + rounds):
        for artifact, plan, deterministic in programs:
            seconds.seconds.clear()
            begun = time.perf_counter()
            budget = TimingBudget(relative_error=TRIAL_ERROR) if timed else None
            verdict = bench.evaluate(artifact, plan, budget, deterministic=deterministic)
            if turn and verdict.outcome is Outcome.OK:
                whole = time.perf_counter() - begun
                found.append({"whole": whole, **{name: seconds.seconds[name] for name in STEPS}})
    return found


def line(found: Sequence[dict[str, float]]) -> str:
    """Medians in milliseconds."""
    if not found:
        return "no candidate was right"
    medians = {name: 1e3 * statistics.median(one[name] for one in found) for name in ("whole", *STEPS)}
    waited = medians["whole"] - sum(medians[name] for name in STEPS)
    said = [f"{name} {ms:.1f}" for name, ms in medians.items()]
    return f"{len(found)} verdicts, ms: " + ", ".join([*said, f"waited {waited:.1f}"])


@contextlib.contextmanager
def compiling(sources: Sequence[KernelSource], arch: str, builds: int) -> Iterator[None]:
    """Compilers beside, `builds` at a time, into a folder that is removed: each has a source that nobody has built."""
    with tempfile.TemporaryDirectory() as folder, BuildPool(BuildCache(Path(folder)), max(1, builds)) as pool:
        for source in sources if builds else ():
            pool.submit(CubinRequest(source, arch))
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the starts, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="backward")
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--device")
    parser.add_argument("--template", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=int, default=0, help="compilers that run meanwhile")
    options = parser.parse_args(arguments)
    opener = choose_device(options.device)
    subject = choose_subject(options.op, options.template, None)
    problem = subject.problem({"T": options.T})
    device, cache = opener.open(), BuildCache()
    seconds = Timed(device)
    spec, templates = device.identity.spec, {template.name: template for template in subject.templates}
    families = choose_families(subject.templates, problem, spec)
    executed = subject.op.emulated(problem) if device.identity.estimates else problem
    starts = [(templates[candidate.template], candidate.config) for candidate in families.starts()]
    sources = [render(template, executed, config, spec) for template, config in starts]
    with BuildPool(cache) as pool:
        built = [
            pool.submit(EmulatorRequest(source) if opener.estimates else CubinRequest(source, spec.arch))
            for source in sources
        ]
        programs = [
            (future.result(), source.plan, traits_of(template, executed, config, spec).deterministic)
            for future, source, (template, config) in zip(built, sources, starts, strict=True)
        ]
    rng = np.random.default_rng()
    others = [
        render(templates[family.name], problem, family.space.sample(rng), spec)
        for family in families
        for _ in range(200 if options.beside else 0)
    ]
    bench = Bench(device, subject.op, *expectations(subject.op, executed, 0))
    with compiling(others, spec.arch, options.beside):
        print(f"{executed} on {device.identity.name}, {os.cpu_count()} cores, {options.beside} compilers beside")
        print(line(judged(bench, seconds, programs, timed=not opener.estimates, rounds=options.rounds)))


if __name__ == "__main__":
    main()
