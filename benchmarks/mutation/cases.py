"""What mistakes are planted in: of every family some configurations, each with a problem of its own. Small ones."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np

from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.awkward import second_problems
from autotune.ops.registry import BUILTIN, get_op
from autotune.tuning.examination import in_flight

SPEC = gpu("h200")
CASES = 4
"""Configurations of a family: its default, then random ones."""

_DRAWS = 6  # of which the configuration with the most code of its own is taken

_ATTENTION = {"B": 1, "NH": 2, "NH_kv": 2, "T": 192, "T_kv": 192, "HS": 64}
_SMALL: Mapping[str, Mapping[str, Any]] = {
    "forward": _ATTENTION,
    "backward": _ATTENTION,
    "matmul": {"B": 1, "NH": 2, "M": 128, "N": 192, "K": 64},
    "softmax": {"B": 1, "NH": 2, "T": 96, "T_kv": 192},
    "softmax_backward": {"B": 1, "NH": 2, "T": 96, "T_kv": 96},
    "permute": {"B": 2, "NH": 3, "T": 96, "HS": 64},
}
_TURNS: Mapping[str, tuple[Value, ...]] = {
    "dtype": ("fp16", "bf16", "fp32", "fp16"),
    "causal": (True, True, False, True),
    "layout": ("bthd", "bhtd", "packed", "bthd"),
    "HS": (64, 64, 128, 32),
    "mask": ("none", "c_lower", "a_lower", "a_upper"),
    "interleaved": ("none", "ab", "bc", "none"),
    "group": (1, 2, 1, 1),
    "source": ("bthd", "bhtd", "bthd", "bhtd"),
    "target": ("bhtd", "bthd", "bhtd", "bthd"),
}
"""Fields that each case has otherwise, where the op has them."""


@dataclass(frozen=True)
class Case:
    """A family's configuration number `number` and the problem that it is searched for."""

    family: str  # "forward/flash_mma"
    number: int
    template: Template
    problem: Problem
    config: tuple[tuple[str, Value], ...]

    def render(self, problem: Problem | None = None) -> KernelSource:
        """Its source, perhaps for another problem."""
        return render(self.template, problem or self.problem, dict(self.config), SPEC)

    def second_problems(self, count: int = 4) -> tuple[Problem, ...]:
        """Those of an examination."""
        longer = in_flight(self.template.op, dict(self.config))
        others = second_problems(get_op(self.template.op), self.problem, longer)
        fitting = (other for other in others if self._computes(other))
        return tuple(islice(fitting, count))

    def _computes(self, problem: Problem) -> bool:
        fits = self.template.why_unsupported(problem, SPEC) is None
        return fits and Space(self.template, problem, SPEC).why_not(dict(self.config)) is None


def families() -> dict[str, Template]:
    """All that are shipped, by `op/name`."""
    return {f"{template.op}/{template.name}": template for op in BUILTIN for template in builtin_templates(op)}


@cache
def case_of(family: str, number: int) -> Case:
    """The case of that number."""
    template = families()[family]
    problem = next(p for p in _problems(template, number) if template.why_unsupported(p, SPEC) is None)
    space = Space(template, problem, SPEC)
    random = np.random.default_rng([number, *family.encode()])
    drawn = [space.default()] if number == 0 else [space.sample(random) for _ in range(_DRAWS)]
    config = max(drawn, key=lambda each: len(render(template, problem, each, SPEC).body))
    return Case(family, number, template, problem, tuple(config.items()))


def _problems(template: Template, number: int) -> Iterator[Problem]:
    """The turn's fields, then with what the family asks for instead: dtype first, then head size, layout, mask."""
    op = get_op(template.op)
    fields = {field.name: field for field in op.fields}
    turn = {name: values[number % len(values)] for name, values in _TURNS.items() if name in fields}
    if template.op == "matmul":
        turn["layout"] = ("nt", "nn", "nn", "nn")[number % 4]
    base = {**_SMALL[template.op], **turn}
    names = [name for name in ("layout", "HS", "dtype") if name in fields]
    others = {
        "dtype": ("fp16", "bf16", "fp32"),
        "HS": (64, 128, 32),
        "layout": fields["layout"].choices if "layout" in fields else (),
    }
    for values in product(*((base[name], *others[name]) for name in names)):
        with suppress(ProblemError):
            yield op.problem(**{**base, **dict(zip(names, values, strict=True))})
    with suppress(ProblemError):
        yield op.problem(**{**base, "dtype": "fp32", "arithmetic": "tf32"})
