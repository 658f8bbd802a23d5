"""What the engine knows of an op: its fields, its tensors, and how to make inputs and a reference result."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Union

from autotune.core.arithmetic import FULL
from autotune.core.dtypes import DTYPES
from autotune.core.errors import ProblemError
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.core.values import Config, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from autotune.ops.row_bounds import RowScale

Arrays = dict[str, "NDArray[Any]"]
Bound = Union[float, "NDArray[np.float64]"]
"""Of a whole output, by row, (…, T, 1), or (…, T) where a row is one number, or by element."""

LONGEST = 2**30
"""The largest length of a built-in op: positions are 32 bits in kernels, which add two and round up to whole tiles."""


@dataclass(frozen=True)
class Field:
    """One field of an op's problems.

    Attributes:
        default_from: another field whose value is the default (NH_kv takes NH's).
        implied: a problem says it only where it is another value than that default (`Problem.implied`).
        help: what it is, in lower case; of the command line's option too.
        has_option: whether the command line has `--name`; not where that means something else there (`--set` does).
    """

    name: str
    kind: Literal["int", "bool", "choice", "float"]
    default: Value | None = None
    default_from: str | None = None
    choices: tuple[str, ...] = ()
    minimum: int = 1
    maximum: int = 2**31 - 1
    help: str = ""
    has_option: bool = True
    implied: bool = False

    @property
    def option(self) -> str:
        """`--NH-kv` for `NH_kv`; of a boolean, the one that says yes."""
        return "--" + self.name.replace("_", "-")

    def parse(self, op: str, value: Value) -> Value:
        """The value in the field's type; text from a command line is converted.

        Raises:
            ProblemError: it is not one.
        """
        said = f"op {op!r}: {self.name}={value!r}"
        if self.kind == "choice":
            if value not in self.choices:
                raise ProblemError(f"{said} is not one of {', '.join(self.choices)}")
            return str(value)
        if self.kind == "bool":
            known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
            if str(value).lower() not in known:
                raise ProblemError(f"{said} is neither true nor false")
            return known[str(value).lower()]
        return self._float(said, value) if self.kind == "float" else self._whole(op, said, value)

    def _float(self, said: str, value: Value) -> float:
        number: object = value
        if isinstance(value, str):
            with suppress(ValueError):
                number = float(value)
        if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
            raise ProblemError(f"{said} is not a finite number")
        return float(number)

    def _whole(self, op: str, said: str, value: Value) -> int:
        number: object = value
        if isinstance(value, str):
            with suppress(ValueError):
                number = int(value)
        elif isinstance(value, float) and value.is_integer():  # 1e3
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, Integral):
            raise ProblemError(f"{said} is not a whole number")
        whole = int(number)
        if not self.minimum <= whole <= self.maximum:
            limit = f"at least {self.minimum}" if whole < self.minimum else f"at most {self.maximum}"
            raise ProblemError(f"op {op!r}: {self.name}={value} must be {limit}")
        return whole


@dataclass(frozen=True)
class Rule:
    """What two whole-number fields of a problem must be to each other: `left` divisible by `right`, or equal to it.

    Checked where problems are made, and by exported launchers, which take the shape as arguments.
    """

    left: str
    relation: Literal["divisible", "equal"]
    right: str
    why: str

    def holds(self, left: int, right: int) -> bool:
        """Whether it does for these values."""
        return left == right if self.relation == "equal" else left % right == 0

    def complaint(self, left: object, right: object) -> str:
        """What to say where it does not, for values as they are to be shown."""
        names = f"{self.left}={left}", f"{self.right}={right}"
        said = "{} must equal {}" if self.relation == "equal" else "{} is not divisible by {}"
        return f"{said.format(*names)}: {self.why}"


class Op(ABC):
    """An op. The engine handles attention and a user's own kernels through this class alone.

    Arrays have the tensors' logical shapes; the order of dimensions in memory is in `TensorSpec.strides`.
    """

    name: str
    summary: str
    fields: tuple[Field, ...]
    exact_fields: tuple[str, ...]
    """Fields that a lookup of the nearest problem must not change (dtype, mask, head size)."""
    version: str = ""
    """Changes when a user's own reference does; the built-in ones are those of the package."""
    has_hard_inputs: bool = False
    positive: tuple[str, ...] = ()
    """Those of the `scalars` that must be above 0."""
    error_factor: float
    """k in max|got - reference| <= k * max|low_precision - reference| + atol."""

    def problem(self, **given: Value) -> Problem:
        """A problem from some fields; the others take their defaults.

        Raises:
            ProblemError: an unknown field, a value out of range, or fields that contradict one another.
        """
        unknown = given.keys() - {field.name for field in self.fields}
        if unknown:
            names = ", ".join(field.name for field in self.fields)
            raise ProblemError(f"op {self.name!r} has no field {sorted(unknown)[0]!r}; its fields are {names}")
        values: dict[str, Value] = {}
        for field in self.fields:
            values[field.name] = field.parse(self.name, self._value(field, given, values))
        problem = Problem.of(self.name, values, self.implied)
        self.check(problem)
        return problem

    @cached_property
    def implied(self) -> tuple[tuple[str, str], ...]:
        """Fields that a problem need not say, each with the one whose value they then have."""
        return tuple((f.name, f.default_from) for f in self.fields if f.implied and f.default_from is not None)

    def _value(self, field: Field, given: Mapping[str, Value], values: Mapping[str, Value]) -> Value:
        if field.name in given:
            return given[field.name]
        default = values[field.default_from] if field.default_from else field.default
        if default is None:
            raise ProblemError(f"op {self.name!r} needs a value for {field.name}")
        return default

    def rules(self, problem: Problem) -> tuple[Rule, ...]:  # noqa: ARG002 - most ops have none
        """What whole-number fields must be to one another."""
        return ()

    def check(self, problem: Problem) -> None:
        """Raise ProblemError where fields contradict one another."""
        for rule in self.rules(problem):
            left, right = problem.integer(rule.left), problem.integer(rule.right)
            if not rule.holds(left, right):
                raise ProblemError(f"op {self.name!r}: {rule.complaint(left, right)}")

    def akin(self, problem: Problem) -> tuple[Problem, ...]:
        """The same with other values of `exact_fields` for which kernels are nearly the same, the most alike first."""
        return problem.unsaid()

    @abstractmethod
    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """Inputs and outputs with their places in memory."""

    def scalars(self, problem: Problem) -> dict[str, float]:  # noqa: ARG002 - most ops have none
        """Float arguments of the op itself (the softmax scale)."""
        return {}

    @abstractmethod
    def inputs(self, problem: Problem, seed: int) -> Arrays:
        """Inputs by tensor name, in the tensor's dtype and logical shape."""

    def hard_inputs(self, problem: Problem, seed: int) -> Arrays:
        """Inputs under which mistakes show that `inputs` may hide, where `has_hard_inputs`; else the same."""
        return self.inputs(problem, seed)

    @abstractmethod
    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        """Outputs in float64, computed from exactly these inputs."""

    @abstractmethod
    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """Outputs (as float64) when intermediates are rounded as a good kernel of this dtype rounds them."""

    def arithmetics(self, problem: Problem) -> tuple[str, ...]:  # noqa: ARG002 - most ops have one
        """Arithmetics of families whose results can be judged."""
        return (FULL,)

    def approximate(self, problem: Problem, inputs: Arrays, arithmetic: str) -> Arrays:  # noqa: ARG002
        """`low_precision` with the products of one of the `arithmetics`."""
        return self.low_precision(problem, inputs)

    def noise(self, problem: Problem, inputs: Arrays) -> dict[str, float]:  # noqa: ARG002 - most ops have none
        """Absolute fp32 rounding, by output, that cancellation may leave even where the reference is exactly 0."""
        return {}

    def row_scales(self, problem: Problem, inputs: Arrays) -> "Mapping[str, RowScale]":  # noqa: ARG002
        """How much rounding may change each row of a unit's outputs; empty where an output has one bound."""
        return {}

    def settle_bounds(
        self, problem: Problem, reference: Arrays, bounds: "Mapping[str, Bound]"  # noqa: ARG002
    ) -> "Mapping[str, Bound]":  # fmt: skip
        """The bounds of a unit's outputs, from those that rounding gives."""
        return bounds

    def in_place(self, problem: Problem) -> dict[str, str]:  # noqa: ARG002 - most ops have none
        """Outputs that kernels change in place, each with the input that holds what they begin with."""
        return {}

    @abstractmethod
    def flops(self, problem: Problem) -> float:
        """Floating-point operations by the field's convention (attention: 2·B·NH·T·T_kv·(HS+HS_v), causal half)."""

    def tiled_flops(self, problem: Problem, config: Config) -> float:  # noqa: ARG002 - most ops know no tiles
        """`flops` when lengths are rounded up to the tiles of a configuration, as far as its parameters tell."""
        return self.flops(problem)

    def heaviest(self, problem: Problem, config: Config) -> float:  # noqa: ARG002 - without a mask all are alike
        """Operations of the block that has most of them over those of the mean one, where blocks share out what is
        computed in a configuration's tiles; at least 1."""
        return 1.0

    def unmasked(self, problem: Problem, config: Config) -> float:  # noqa: ARG002 - without a mask all are computed
        """The share of what a configuration's tiles cover that is computed, 0 to 1."""
        return 1.0

    def nbytes(self, problem: Problem) -> float:
        """Compulsory bytes: each input read once, each output written once."""
        return float(sum(math.prod(t.shape) * DTYPES[t.dtype].size for t in self.tensors(problem)))

    def laid_out_otherwise(self, problem: Problem) -> Problem | None:  # noqa: ARG002
        """The problem of arrays of the same shapes that lie as few kernels take them; None where `problem` is it."""
        return None

    def emulated(self, problem: Problem) -> Problem:
        """The smaller problem that the emulator executes in its place."""
        return problem

    def smaller(self, problem: Problem) -> Iterator[Problem]:
        """Problems that may be executed in its place, for configurations that not all of them suit: first `emulated`,
        at last the problem itself."""
        yield self.emulated(problem)
        yield problem

    def hide(self, problem: Problem, inputs: Arrays, seed: int | None = None) -> Arrays:  # noqa: ARG002 - most hide nothing
        """The same inputs with NaN where few results depend on it, or none: it must not reach the others.

        A seed asks for inputs of one unit with as few NaN as may still reach others, in places that it takes. Tensors
        that hold NaN are alternatives, of which verification takes one; what is changed otherwise belongs together.
        """
        return inputs

    def units(self, problem: Problem) -> int:  # noqa: ARG002
        """Into how many independent pieces a result can be checked."""
        return 1

    def unit_problem(self, problem: Problem) -> Problem:
        """The problem of one such piece."""
        return problem

    def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:  # noqa: ARG002
        """Views of one piece, in the logical shapes of `unit_problem`."""
        return arrays


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major element strides."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))
