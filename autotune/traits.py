"""What a candidate's family says of its results beyond their being right."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autotune.arithmetic import ARITHMETICS, FULL
from autotune.devices.spec import DeviceSpec
from autotune.problem import Problem
from autotune.space import Space
from autotune.template import Template
from autotune.values import Config


@dataclass(frozen=True)
class Traits:
    """How a candidate multiplies, and whether repeats give identical bits."""

    arithmetic: str
    deterministic: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"arithmetic": self.arithmetic, "deterministic": self.deterministic}

    def rows(self) -> Iterator[tuple[str, str]]:
        """For people; the arithmetic only where it is not that of the elements."""
        if self.arithmetic != FULL:
            yield "arithmetic", f"{self.arithmetic}: {ARITHMETICS[self.arithmetic]}"
        yield "deterministic", "yes" if self.deterministic else "no: sums are added up in an order left to chance"


def traits_of(template: Template, problem: Problem, config: Config, spec: DeviceSpec) -> Traits:
    """What the family's front matter says of one configuration for one problem on one device.

    Raises:
        ExpressionError: its `deterministic` is wrong.
    """
    with template.named_errors():
        namespace = Space(template, problem, spec).namespace(config)
        return Traits(template.front.arithmetic, bool(template.front.deterministic(namespace)))
