"""What notices a mistake: the compiler, verification as in a search, the examination of a winner, its traced run.

Each candidate is judged in a process of its own, which a wrong kernel may hang or tear down. References are computed
before, once for all mistakes of a case.
"""

import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotune.compilers.cache import BuildCache
from autotune.core.errors import CompileError, LaunchError
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench
from autotune.devices.twin import GAPS, MISALIGNED, make_twin
from autotune.emulator.building import build_emulator
from autotune.families.source import KernelSource
from autotune.families.traits import traits_of
from autotune.ops.expected import Expectation, expectations, make_inputs, storage_images
from autotune.ops.registry import get_op
from autotune.trace.tracing import trace_plan
from autotune.tuning.examination import placements_of
from benchmarks.mutation.cases import SPEC, Case

LIMIT_S = 120
"""Seconds of processor time that a process may take, and each of its compilers: a build takes ten, a run of a right
kernel forty."""

WAIT_S = 200.0
"""Seconds until a process is taken to hang."""

SEED = 1
PASSED = ""

Change = Callable[[KernelSource], KernelSource]
"""Plants the mistake in a rendered source."""


@dataclass(frozen=True)
class Verdict:
    """`stage`: of what noticed it, "equivalent", or empty when nothing did."""

    stage: str
    message: str
    seconds: float


def judge(case: Case, change: Change, cache_folder: Path, *, compare: bool = True) -> Verdict:
    """What becomes of a case with a mistake. Without `compare` it is not asked whether it is one."""
    started = time.monotonic()
    stages: tuple[tuple[str, Callable[[], tuple[str, str]]], ...] = (
        ("verification", lambda: _verified(case, case.problem, change, cache_folder)),
        ("equivalence", lambda: _compared(case, change, cache_folder)),
        ("examination", lambda: _examined(case, change, cache_folder)),
    )
    for name, run in stages if compare else (stages[0], stages[2]):
        if name == "verification":
            _expected(case.problem)
        elif name == "examination":
            for place, problem in enumerate(case.second_problems()):
                _expected(problem, SEED + place)
        stage, message = _apart(run, name)
        if stage:
            return Verdict(stage, message, time.monotonic() - started)
    return Verdict(PASSED, "", time.monotonic() - started)


@cache
def _expected(problem: Problem, seed: int = SEED) -> tuple[Expectation, ...]:
    return expectations(get_op(problem.op), problem, seed)


def _verified(case: Case, problem: Problem, change: Change, folder: Path, place: int | None = None) -> tuple[str, str]:
    """One problem as the worker of a search verifies it; `place`: of an examination's problems the number."""
    stage = "verification" if place is None else "examination"
    source = change(case.render(problem))
    try:
        artifact = build_emulator(source, BuildCache(folder))
    except CompileError as error:
        return "compiler", str(error)
    device = CpuDevice(SPEC, threads=2)
    try:
        bench = Bench(device, get_op(problem.op), *_expected(problem, SEED + (place or 0)))
        deterministic = traits_of(case.template, problem, dict(case.config), SPEC).deterministic
        placements = (GAPS,) if place is None else placements_of(place)
        verdict = bench.evaluate(artifact, source.plan, None, deterministic=deterministic, placements=placements)
        if place in (0, 2) and verdict.outcome is Outcome.OK:
            verdict = bench.move_away(device, artifact, source.plan, verdict)
    finally:
        device.close()
    return (PASSED, "") if verdict.outcome is Outcome.OK else (stage, verdict.message)


def _compared(case: Case, change: Change, folder: Path) -> tuple[str, str]:
    """Whether the compiler makes the same of both: nothing that is executed was changed."""
    right = case.render()
    cache = BuildCache(folder)
    same = build_emulator(right, cache).path.read_bytes() == build_emulator(change(right), cache).path.read_bytes()
    return ("equivalent", "the same machine code") if same else (PASSED, "")


def _examined(case: Case, change: Change, folder: Path) -> tuple[str, str]:
    """As `tuning.examination` does it before a candidate becomes a winner."""
    problems = case.second_problems()
    for place, problem in enumerate(problems):
        stage, message = _verified(case, problem, change, folder, place)
        if stage:
            return stage, f"{message} (on {problem})"
    problem = problems[0] if problems else case.problem
    source, op = change(case.render(problem)), get_op(problem.op)
    tensors = op.tensors(problem)
    try:
        artifact = build_emulator(source, BuildCache(folder), traced=True, arch=SPEC.arch)
        inputs = make_inputs(op, problem, SEED, hard=True)
        sides = [(source.plan, tensors)]
        twins = [make_twin(source.plan, tensors, placement) for placement in MISALIGNED] if problems else []
        sides += [(twin.plan, twin.tensors) for twin in twins if twin]
        for plan, placed in sides:
            trace = trace_plan(artifact, plan, storage_images(placed, inputs), placed, arithmetic=False)
            if trace.findings:
                return "checker", f"{trace.findings[0]} (on {problem})"
    except (CompileError, LaunchError) as error:
        return "checker", str(error)
    return PASSED, ""


def _apart(run: Callable[[], tuple[str, str]], stage: str) -> tuple[str, str]:
    """What `run` finds in a process of its own; one that hangs or dies has been noticed at this stage."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - the child
        os.setsid()
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        try:
            said = json.dumps(run())
        except BaseException:  # noqa: BLE001 - whatever it is, the parent tells
            said = json.dumps(("broken", traceback.format_exc(limit=-3)))
        with os.fdopen(writing, "w") as pipe:
            pipe.write(said)
        os._exit(0)
    os.close(writing)
    chunks: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            chunk = pipe.read(65536) if ready else None
            if not chunk:
                break
            chunks.append(chunk)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready:
        return stage, f"not done after {WAIT_S:g} s"
    if not chunks:
        return stage, f"the process died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no verdict"
    found, message = json.loads(b"".join(chunks))
    return found, message
