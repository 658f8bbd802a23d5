"""What a search evaluates and how: the problem, the families, the device; and one candidate's way through it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.compilers.artifact import Artifact
from autotune.core.candidate import Candidate
from autotune.core.errors import FaultFound
from autotune.core.measurement import KernelResources, Timing, Verification
from autotune.core.problem import Problem
from autotune.devices.messages import OpSource
from autotune.estimate.fallback import estimate
from autotune.families.op_ref import OpRef
from autotune.families.reduced import executable
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import Template
from autotune.gpus.identity import DeviceIdentity
from autotune.ops.attention import Attention
from autotune.ops.op import Op
from autotune.trace.task import TraceTask
from autotune.tuning.counter import Counter, EstimateRequest
from autotune.tuning.pruning import least_ms

EMULATED_RATE = 2e8
"""Operations a second that the emulator reaches with all repeats of a verification, on a slow and busy machine."""


@dataclass(eq=False)
class Job:
    """A candidate under way, and what is known about it so far."""

    source: KernelSource
    again: bool = False  # it crashed or ran out of time before
    build_seconds: float = 0.0
    compiler: str = ""
    machine_code: str | None = None
    resources: tuple[KernelResources, ...] = ()
    cubin: Path | None = None
    artifacts: list[Artifact] = field(default_factory=list)  # in use until it is done
    timing: Timing | None = None  # on the emulator: the estimate
    verification: Verification | None = None  # on the emulator: once it is known to be right
    fault: FaultFound | None = None  # what its traced run showed
    uncounted: str = ""  # why its work could not be counted
    done: threading.Event = field(default_factory=threading.Event)
    behind: "Job | None" = None  # whose run it shares, and whose record comes first


@dataclass(frozen=True)
class Task:
    """What is tuned and where: all that evaluating a candidate needs to know."""

    op: Op
    op_source: OpSource
    problem: Problem
    templates: Mapping[str, Template]
    identity: DeviceIdentity
    environment: Mapping[str, str]
    seed: int
    limit_s: float

    @property
    def emulated(self) -> bool:
        """Whether kernels run on the emulator, and times are estimates."""
        return self.identity.estimates

    @property
    def executed(self) -> Problem:
        """The problem that is executed and verified."""
        return self.reduced if self.emulated else self.problem

    @property
    def reduced(self) -> Problem:
        """What the emulator executes for the problem, which may be far too long for it."""
        return self.op.emulated(self.problem)

    @property
    def patience_s(self) -> float:
        """How long a candidate may take: the limit, and on the emulator what its work takes besides."""
        return self.limit_s + (self.op.flops(self.executed) / EMULATED_RATE if self.emulated else 0.0)

    def render(self, candidate: Candidate, problem: Problem) -> KernelSource:
        """The candidate's source for a problem; for one with too few heads as `executable` has it."""
        template, spec = self.templates[candidate.template], self.identity.spec
        config = candidate.config if problem == self.problem else executable(template, problem, candidate.config, spec)
        return render(template, problem, config, spec)

    def least_ms(self, job: Job) -> float:
        """What a candidate takes at the least; 0 where that is not known.

        No attention of at least as many keys as queries does with fewer operations than are counted by convention.
        """
        problem = self.problem
        if job.cubin is None or not isinstance(self.op, Attention) or problem.integer("T") > problem.integer("T_kv"):
            return 0.0
        return least_ms(self.op.flops(self.problem), job.source, job.cubin, self.identity.spec)

    def estimate_request(self, job: Job, counter: Counter) -> EstimateRequest | None:
        """How to estimate a candidate; None for an op that no other process can resolve."""
        if not isinstance(self.op_source, OpRef) or job.cubin is None:
            return None
        candidate = job.source.candidate
        path = self.templates[candidate.template].path.resolve()
        task = TraceTask(self.op_source, path, self.problem, candidate.values, self.identity.spec, blocks=None)
        return EstimateRequest(counter, task, self.op, job.source.plan, job.cubin, job.resources)

    def fallback(self, job: Job) -> Timing:
        """An estimate where nothing could be counted."""
        template = self.templates[job.source.candidate.template]
        flops = template.executed_flops(self.op.flops(self.problem), self.problem)
        nbytes, plan, spec = self.op.nbytes(self.problem), job.source.plan, self.identity.spec
        return estimate(flops, nbytes, plan, job.resources, spec, tensor_cores=template.front.tensor_cores)
