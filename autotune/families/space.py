"""The valid configurations of a (template, problem, device), filtered with arrays in place of loops."""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import NoFeasibleConfiguration, TemplateError
from autotune.core.problem import Problem
from autotune.core.values import Config, Value, format_config, is_listed
from autotune.families.frontmatter import LaunchSpec
from autotune.families.limits import Limit, device_limits
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec

_LARGEST = 50_000_000
"""Raw combinations held as one boolean array."""


class Space:
    """All configurations of `template` that pass its constraints and the device's limits for `problem`.

    Raises:
        TemplateError: more raw combinations than can be held, or an expression that fails.
    """

    def __init__(self, template: Template, problem: Problem, spec: DeviceSpec) -> None:
        self.template, self.problem, self.spec = template, problem, spec
        self._shape = tuple(len(parameter.values) for parameter in template.parameters)
        if self.raw_size > _LARGEST:
            raise TemplateError(
                f"{template.path}: {self.raw_size:,} raw combinations are more than {_LARGEST:,}; list fewer values"
            )

    @property
    def raw_size(self) -> int:
        """Combinations before constraints."""
        return math.prod(self._shape)

    @cached_property
    def _valid(self) -> NDArray[np.int64]:
        """Flat indices of the valid configurations, ascending."""
        with self.template.named_errors():
            return np.flatnonzero(self._mask())

    def _mask(self) -> NDArray[np.bool_]:
        try:
            conditions = sorted(self._conditions(), key=lambda condition: condition.size)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise TemplateError(f"{self.template.path}: an expression has a value of no use: {error}") from error
        # Most depend on a few parameters: joined from the smallest on, only the last are as large as the space.
        joined = reduce(np.logical_and, conditions, np.ones((1,) * len(self._shape), dtype=bool))
        return np.broadcast_to(joined, self._shape)

    def _conditions(self) -> Iterator[NDArray[np.bool_]]:
        """Every constraint and limit over the axes that it depends on."""
        namespace = self._namespace(self._axes())
        for constraint in self.template.front.constraints:
            yield np.asarray(constraint.expr.over(namespace), dtype=bool)
        for limit in self._limits(namespace, grid=True):
            yield np.asarray(limit.holds, dtype=bool)

    def _axes(self) -> dict[str, NDArray[Any]]:
        """Each parameter's values along an axis of its own, so that expressions broadcast."""
        axes = {}
        for i, parameter in enumerate(self.template.parameters):
            shape = [1] * len(self._shape)
            shape[i] = len(parameter.values)
            axes[parameter.name] = np.array(parameter.values).reshape(shape)
        return axes

    def _namespace(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Problem fields, parameters, device, derived names and `smem`; for one configuration or for the grid."""
        front = self.template.front
        grid = any(isinstance(value, np.ndarray) for value in config.values())
        namespace: dict[str, Any] = {**self.problem.fields, "device": self.spec, **config}
        for name, expression in front.derived:
            namespace[name] = expression.over(namespace) if grid else expression(namespace)
        sizes: Any = 0
        for launch in front.steps:
            if isinstance(launch, LaunchSpec):
                sizes = np.maximum(sizes, _launch_smem(launch, namespace, grid))
        namespace["smem"] = sizes if grid else int(sizes)
        return namespace

    def namespace(self, config: Config) -> dict[str, Any]:
        """What expressions and the template's body see for one configuration."""
        try:
            with self.template.named_errors():
                return self._namespace(config)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise TemplateError(f"{self.template.path}: an expression has a value of no use: {error}") from error

    def _limits(self, namespace: Mapping[str, Any], grid: bool) -> Iterator[Limit]:
        for launch in self.template.front.steps:
            if isinstance(launch, LaunchSpec):
                yield from device_limits(launch, namespace, self.spec, grid)

    @property
    def size(self) -> int:
        """How many configurations are valid."""
        return len(self._valid)

    def configs(self) -> Iterator[dict[str, Value]]:
        """All valid configurations in a fixed order."""
        return (self._at(int(index)) for index in self._valid)

    def candidates(self) -> Iterator[Candidate]:
        return (self.candidate(config) for config in self.configs())

    def candidate(self, config: Config) -> Candidate:
        """The candidate of a configuration, its values in the template's order."""
        ordered = {parameter.name: config[parameter.name] for parameter in self.template.parameters}
        return make_candidate(self.template.name, self.template.hash, ordered)

    def __getitem__(self, position: int) -> dict[str, Value]:
        """The valid configuration at a position between 0 and size-1."""
        return self._at(int(self._valid[position]))

    def _at(self, flat: int) -> dict[str, Value]:
        indices = np.unravel_index(flat, self._shape) if self._shape else ()
        return {p.name: p.values[int(i)] for p, i in zip(self.template.parameters, indices, strict=True)}

    def contains(self, config: Config) -> bool:
        """Whether the configuration is valid (constant time once the space has been filtered)."""
        flat = self._flat(config)
        if flat is None:
            return False
        position = int(np.searchsorted(self._valid, flat))
        return position < self.size and int(self._valid[position]) == flat

    def _flat(self, config: Config) -> int | None:
        """Index in the raw space; None for a missing, unknown or unlisted value."""
        if not self.template.lists(config):
            return None
        flat = 0
        for parameter in self.template.parameters:
            flat = flat * len(parameter.values) + parameter.values.index(config[parameter.name])
        return flat

    def sample(self, generator: np.random.Generator) -> dict[str, Value]:
        """A valid configuration, uniformly.

        Raises:
            NoFeasibleConfiguration: there is none.
        """
        self._require_any()
        return self[int(generator.integers(self.size))]

    def draw(self, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Up to `count` valid configurations, uniformly, none twice; all where there are no more than `count`.

        A row each: the position of every parameter's value in its list.
        """
        if count >= self.size:
            flat = self._valid
        else:
            flat = self._valid[generator.choice(self.size, count, replace=False, shuffle=False)]
        columns = np.unravel_index(flat, self._shape) if self._shape else ()
        return np.stack(columns, axis=1) if columns else np.zeros((len(flat), 0), np.int64)

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of the rows, written as those of `draw`, is valid."""
        if not self.size:
            return np.zeros(len(rows), dtype=bool)
        flat = rows @ np.array([math.prod(self._shape[i + 1 :]) for i in range(len(self._shape))], dtype=np.int64)
        places = np.searchsorted(self._valid, flat)
        return np.equal(self._valid[np.minimum(places, self.size - 1)], flat)

    def starts(self) -> tuple[dict[str, Value], ...]:
        """The family's starts for this problem and device, as far as they are valid, best first; then its default.

        Where none of them is valid, the valid configuration with most values in common with the first.

        Raises:
            NoFeasibleConfiguration: there is none.
        """
        wanted = [{**self.template.defaults, **dict(values)} for values in self._listed_starts()]
        wanted.append(self.template.defaults)
        distinct = {tuple(config.items()): config for config in wanted}
        valid = tuple(config for config in distinct.values() if self.why_not(config) is None)
        return valid or (self._nearest(wanted[0]),)

    def default(self) -> dict[str, Value]:
        """The first of `starts`. Raises as it does."""
        return self.starts()[0]

    def _listed_starts(self) -> Iterator[tuple[tuple[str, Value], ...]]:
        with self.template.named_errors():
            for start in self.template.starts:
                if start.when({**self.problem.fields, "device": self.spec}):
                    yield start.values

    def _nearest(self, config: Config) -> dict[str, Value]:
        self._require_any()
        columns = np.unravel_index(self._valid, self._shape)
        agreement = sum(
            (column == p.values.index(config[p.name])).astype(int)
            for column, p in zip(columns, self.template.parameters, strict=True)
        )
        return self[int(np.argmax(agreement))]

    def _require_any(self) -> None:
        if not self.size:
            why = self.why_not(self.template.defaults) or "every constraint is unmet somewhere"
            raise NoFeasibleConfiguration(
                f"template {self.template.name} has no valid configuration for {self.problem} on {self.spec.title}: "
                f"{why}"
            )

    def why_not(self, config: Config) -> str | None:
        """Why a configuration is not valid, in one line; None when it is."""
        for parameter in self.template.parameters:
            if parameter.name not in config:
                return f"{parameter.name} has no value"
            if not is_listed(config[parameter.name], parameter.values):
                return f"{parameter.name}={config[parameter.name]} is not among {list(parameter.values)}"
        unknown = sorted(config.keys() - {parameter.name for parameter in self.template.parameters})
        if unknown:
            return f"{unknown[0]} is no parameter of {self.template.name}"
        with self.template.named_errors():
            return self._violated(config)

    def _violated(self, config: Config) -> str | None:
        """The constraint or limit that a configuration of listed values does not keep."""
        namespace = self.namespace(config)
        for constraint in self.template.front.constraints:
            if not constraint.expr(namespace):
                return f"{constraint.why} ({constraint.expr.text} fails for {format_config(config)})"
        try:
            return next((limit.why for limit in self._limits(namespace, grid=False) if not limit.holds), None)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise TemplateError(f"{self.template.path}: an expression has a value of no use: {error}") from error


def _launch_smem(launch: LaunchSpec, namespace: Mapping[str, Any], grid: bool) -> Any:
    """Dynamic shared memory of one launch; 0 where it does not take place."""
    if not grid:
        active = launch.when is None or launch.when(namespace)
        return launch.smem(namespace) if active else 0
    size = launch.smem.over(namespace)
    return size if launch.when is None else np.where(launch.when.over(namespace), size, 0)
