"""The best configuration known, as it is answered: which record it rests on and what its time is of."""

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from autotune.core.candidate import Candidate
from autotune.core.dtypes import DTYPES
from autotune.core.errors import UsageError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.gpus.spec import DeviceSpec

if TYPE_CHECKING:
    from autotune.core.plan import LaunchPlan
    from autotune.estimate.fit import Expected
    from autotune.families.source import KernelSource
    from autotune.families.template import Template
    from autotune.families.traits import Traits

Answer = Literal["exact", "nearest", "architecture", "start", "default"]

_NEAR = 2.0
"""Within so many octaves of lengths and counts, winners of the same kind of problem are likely to be good."""

_FAR = 4.0
"""Beyond so many nothing is known."""


def sureness(expected: "Expected") -> str:
    """How sure it is that a configuration is good for a problem it was not timed for."""
    if math.isinf(expected.distance):
        return "a guess: nobody kept a time of this configuration"
    octaves = f"{expected.distance:.1f} octaves away" if expected.distance else "of the same lengths"
    if expected.distance > _FAR:
        trust = "a guess"
    else:
        trust = "likely" if expected.alike and expected.distance <= _NEAR else "plausible"
    return f"{trust}: timed for a problem {octaves}{'' if expected.alike else ', of another mask, layout or dtype'}"


@dataclass(frozen=True)
class Best:
    """The best configuration known. `found_ms` is the time of `found` on `found_on`.

    `ms` is the time of the problem asked on the device asked: None unless the answer is exact. Where it is not,
    `expected_ms` is what times of others make likely (`autotune.estimate.fit`), and `sure` says how far to trust it.
    `source` and `plan` are rendered for the problem asked, on the device asked, when first read.
    """

    answer: Answer
    kind: Literal["measured", "estimated", "none"]
    found_ms: float | None
    problem: Problem
    device: DeviceSpec
    candidate: Candidate
    template: "Template" = field(repr=False, compare=False)
    found: Problem | None = None  # the problem that was tuned; None for a default
    found_on: str | None = None  # the device, as records name it: "h200", "cpu:h200"
    origin: Literal["own", "shipped", "template"] = "template"
    measurement_id: int | None = None  # in the user's database
    driver: str = ""  # what it was measured with; empty where unknown or not involved
    compiler: str = ""
    remarks: tuple[str, ...] = ()
    expected_ms: float | None = None  # for this problem, from times of others; never beside `ms`
    sure: str = ""  # how sure the answer is, in words, and what it goes without
    energy_mj: float | None = None  # of a call, where `found_ms` is known with it
    error: float | None = None  # the part of its bound, where that was asked about

    @property
    def config(self) -> dict[str, Value]:
        return self.candidate.config

    @property
    def ms(self) -> float | None:
        """Milliseconds of this very problem on this very device; None where that has not been timed."""
        return self.found_ms if self.answer == "exact" else None

    @property
    def found_for(self) -> str:
        """What `found_ms` is the time of, where that is another problem or GPU than those asked; else empty."""
        if self.found is None or self.answer == "exact":
            return ""
        if self.found != self.problem:
            return f"for {self.found}, the nearest problem"
        return "for this problem" + ("" if self.answer == "architecture" else ", by another version of the template")

    @cached_property
    def source(self) -> "KernelSource":
        """The kernels, rendered for the problem and the device asked.

        Raises:
            UsageError: the configuration that a database has is not valid for them.
        """
        from autotune.families.render import render
        from autotune.families.space import Space

        why = Space(self.template, self.problem, self.device).why_not(self.config)
        if why is not None:
            raise UsageError(f"the record of {self.candidate} is not valid: {why}; name another database")
        return render(self.template, self.problem, self.config, self.device)

    @property
    def plan(self) -> "LaunchPlan":
        """Buffers and launches for the problem asked."""
        return self.source.plan

    @cached_property
    def traits(self) -> "Traits":
        """How the candidate multiplies, and whether repeats give identical bits."""
        from autotune.families.traits import traits_of

        return traits_of(self.template, self.problem, self.config, self.device)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What to know about this answer, one sentence each; asks for this machine's driver and compiler."""
        from autotune.answers.environment import differences, older_estimate

        if self.kind == "estimated":
            return (*self.remarks, *older_estimate(self.driver), *differences("", self.compiler))
        return (*self.remarks, *differences(self.driver, self.compiler))

    def to_json(self, *, source: bool = True, plan: bool = True) -> dict[str, Any]:
        """Plain data, with the launch plan and the source where they are wanted."""
        return {
            "answer": self.answer,
            "kind": self.kind,
            "ms": self.ms,
            "found_ms": self.found_ms,
            "energy_mj": self.energy_mj,
            "expected_ms": self.expected_ms,
            "sure": self.sure,
            "problem": self.problem.to_json(),
            "device": self.device.name,
            "template": self.candidate.template,
            "template_hash": self.candidate.template_hash,
            "config": self.config,
            **self.traits.to_json(),
            "found": None if self.found is None else self.found.to_json(),
            "found_on": self.found_on,
            "origin": self.origin,
            "measurement_id": self.measurement_id,
            "driver": self.driver,
            "compiler": self.compiler,
            "notes": list(self.notes),
            "source_hash": self.source.hash,
            **({"plan": asdict(self.plan)} if plan else {}),
            **({"source": self.source.code} if source else {}),
        }


def told(found: Best) -> Best:
    """The answer, saying so where 16-bit elements are multiplied without tensor cores for want of a family."""
    lacking = _lacking(found)
    return replace(found, sure="; ".join(filter(None, [found.sure, lacking]))) if lacking else found


def _lacking(found: Best) -> str:
    """Why nothing better than a family without tensor cores is there; empty where something is."""
    from autotune.families.template import builtin_templates
    from autotune.ops.registry import BUILTIN

    problem, spec = found.problem, found.device
    if found.template.front.tensor_cores or problem.op not in BUILTIN or "HS" not in problem.fields:
        return ""
    faster = [family for family in builtin_templates(problem.op) if family.front.tensor_cores]
    if not faster or DTYPES[problem.dtype].size != 2:
        return ""

    def taken(problem: Problem) -> bool:
        return any(family.why_unsupported(problem, spec) is None for family in faster)

    if taken(problem):
        return ""
    sizes = [name for name in ("HS", "HS_v") if name in problem.fields]
    heads = " ".join(f"{name}={problem[name]}" for name in sizes if problem.says(name))
    what = heads if taken(problem.replace(**dict.fromkeys(sizes, 64))) else f"{problem.dtype} on {spec.title}"
    return f"without tensor cores: no family that uses them takes {what}"
