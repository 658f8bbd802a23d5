"""The kernel families that a look-up can answer with, as they are now."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autotune.core.arithmetic import FULL
from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import NoFeasibleConfiguration
from autotune.core.problem import Problem
from autotune.families.planning import make_plan
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec, capability_of
from autotune.ops.registry import get_op


@dataclass(frozen=True)
class Families:
    """Templates of one op."""

    templates: tuple[Template, ...]

    @cached_property
    def _by_name(self) -> dict[str, Template]:
        return {template.name: template for template in self.templates}

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version (hash) of each family by its name."""
        return {template.name: template.hash for template in self.templates}

    def full_precision(self) -> "Families":
        """Those whose products are those of the dtype's elements.

        Raises:
            NoFeasibleConfiguration: there are none.
        """
        return Families(of_full_precision(self.templates))

    def __getitem__(self, name: str) -> Template:
        return self._by_name[name]

    def get(self, name: str) -> Template | None:
        return self._by_name.get(name)

    def is_current(self, candidate: Candidate) -> bool:
        """Whether its template is still the one that was measured."""
        return self.versions.get(candidate.template) == candidate.template_hash

    def lists(self, candidate: Candidate) -> bool:
        """Whether a candidate's template is there and lists its values."""
        template = self.get(candidate.template)
        return template is not None and template.lists(candidate.config)

    def why_not(self, candidate: Candidate, problem: Problem, spec: DeviceSpec) -> str | None:
        """Why a candidate cannot compute the problem on the device; None when it can."""
        template = self.get(candidate.template)
        if template is None:
            return f"there is no template {candidate.template}"
        unsupported = template.why_unsupported(problem, spec)
        return unsupported or Space(template, problem, spec).why_not(candidate.config)

    def mended(self, candidate: Candidate, problem: Problem, spec: DeviceSpec) -> Candidate | None:
        """The candidate, or what `Space.mended` makes of it, if it can compute the problem on the device; else None."""
        template = self.get(candidate.template)
        if template is None or template.why_unsupported(problem, spec) is not None:
            return None
        config = Space(template, problem, spec).mended(candidate.config)
        if config is None or config == candidate.config:
            return None if config is None else candidate
        return make_candidate(candidate.template, candidate.template_hash, config)

    def default(self, problem: Problem, spec: DeviceSpec) -> Candidate:
        """The default of the family that computes least, of those the one whose workspace is the fewest times its
        tensors, of those the one for the newest architecture.

        Nothing has been measured here, so the choice is by what is known: a family that keeps T·T_kv scores in
        memory loses to one that does not. Families that nobody has run on a GPU come after those that somebody has,
        historical ones last.

        Raises:
            NoFeasibleConfiguration: no family can compute the problem on the device.
        """
        reasons, ranked = [], []
        for template in self.templates:
            unsupported = template.why_unsupported(problem, spec)
            if unsupported is not None:
                reasons.append(f"{template.name}: {unsupported}")
                continue
            try:
                ranked.append(_default(template, problem, spec))
            except NoFeasibleConfiguration as error:
                reasons.append(str(error))
        if not ranked:
            why = "; ".join(reasons) or "there are no templates for this op"
            raise NoFeasibleConfiguration(f"no template computes {problem} on {spec.title}: {why}")
        return min(ranked, key=lambda item: item[:-1])[-1]


def of_full_precision(templates: Sequence[Template]) -> tuple[Template, ...]:
    """The families among these whose products are those of the dtype's elements.

    Raises:
        NoFeasibleConfiguration: there are none; the message says what they do instead.
    """
    kept = tuple(template for template in templates if template.front.arithmetic == FULL)
    if templates and not kept:
        others = ", ".join(f"{template.name} ({template.front.arithmetic})" for template in templates)
        raise NoFeasibleConfiguration(f"no family is left with full precision: {others}")
    return kept


def _default(
    template: Template, problem: Problem, spec: DeviceSpec
) -> tuple[bool, bool, float, int, int, int, str, Candidate]:
    space = Space(template, problem, spec)
    config = space.default()
    op = get_op(problem.op)
    plan = make_plan(template, op, problem, space.namespace(config))
    workspace = sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "workspace")
    tensors = sum(buffer.nbytes for buffer in plan.buffers if buffer.role != "workspace")
    newest = capability_of(template.front.arch or "sm_0")
    flops = template.executed_flops(op.flops(problem), problem)
    times = workspace // max(tensors, 1)
    last = template.front.historical, template.unproven
    return *last, flops, times, -newest, workspace, template.name, space.candidate(config)
