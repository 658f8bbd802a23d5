"""What a candidate's family says of its results beyond their being right."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autotune.core.arithmetic import ARITHMETICS, FULL
from autotune.core.candidate import Candidate
from autotune.core.errors import UsageError
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.identity import gpu_of_record
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec

_MEANING = {**ARITHMETICS, "tf32": "fp32 factors rounded to tf32, summed in fp32"}  # the latter is a problem's own


@dataclass(frozen=True)
class Traits:
    """How a candidate multiplies, and whether repeats give identical bits."""

    arithmetic: str
    deterministic: bool

    def to_json(self) -> dict[str, Any]:
        return {"arithmetic": self.arithmetic, "deterministic": self.deterministic}

    def rows(self) -> Iterator[tuple[str, str]]:
        """For people; the arithmetic only where it is not that of the elements."""
        if self.arithmetic != FULL:
            yield "arithmetic", f"{self.arithmetic} ({_MEANING.get(self.arithmetic, 'as the problem says')})"
        yield "deterministic", "yes" if self.deterministic else "no: sums are added up in an order left to chance"


def traits_of(template: Template, problem: Problem, config: Config, spec: DeviceSpec) -> Traits:
    """What the family's front matter says of one configuration for one problem on one device.

    Raises:
        ExpressionError: its `deterministic` is wrong.
    """
    with template.named_errors():
        namespace = Space(template, problem, spec).namespace(config)
        asked = str(problem.fields.get("arithmetic", FULL))  # products of a problem may be less exact than the family's
        arithmetic = asked if template.front.arithmetic == FULL else template.front.arithmetic
        return Traits(arithmetic, bool(template.front.deterministic(namespace)))


def traits_of_record(problem: Problem, candidate: Candidate, device: str) -> Traits | None:
    """The same of a record, by its device's name; None where its family is not a shipped one as it is now."""
    for template in builtin_templates(problem.op):
        if (template.name, template.hash) == (candidate.template, candidate.template_hash):
            try:
                return traits_of(template, problem, candidate.config, gpu(gpu_of_record(device)))
            except UsageError:  # a GPU that is not in the table
                return None
    return None
