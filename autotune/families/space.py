"""The valid configurations of a (template, problem, device), filtered with arrays in place of loops."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import NoFeasibleConfiguration, TemplateError
from autotune.core.problem import Problem
from autotune.core.values import Config, Value, format_config, is_listed
from autotune.families.expressions import Expression
from autotune.families.frontmatter import LaunchSpec
from autotune.families.limits import Limit, device_limits
from autotune.families.starts import Start
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec

_LARGEST = 50_000_000
"""Raw combinations held as one boolean array."""

_LARGEST_SIZE = 2**62  # configurations that are numbered


@dataclass(frozen=True)
class _Part:
    """Some parameters that no constraint ties to others: their places, and the valid ones of their combinations."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    valid: NDArray[np.int64]  # flat indices, ascending

    def columns(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Positions of the values of each parameter, for combinations by their places among the valid ones."""
        return np.unravel_index(self.valid[places], self.shape) if self.shape else ()

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each row, over all parameters, is valid in these."""
        if not len(self.valid):
            return np.zeros(len(rows), dtype=bool)
        flat = np.zeros(len(rows), dtype=np.int64)
        for axis, length in zip(self.axes, self.shape, strict=True):
            flat = flat * length + rows[:, axis]
        held: NDArray[np.bool_] = self.valid[np.minimum(np.searchsorted(self.valid, flat), len(self.valid) - 1)] == flat
        return held


class Space:
    """All configurations of `template` that pass its constraints and the device's limits for `problem`.

    A space of more raw combinations than can be held is the product of parts: of parameters that no constraint, limit
    or derived name ties together. Each is filtered by itself; the whole is never enumerated.

    Raises:
        TemplateError: constraints tie more raw combinations together than can be held, or an expression fails.
    """

    def __init__(self, template: Template, problem: Problem, spec: DeviceSpec) -> None:
        self.template, self.problem, self.spec = template, problem, spec
        self._shape = tuple(len(parameter.values) for parameter in template.parameters)
        for axes in self._tied:
            combinations = math.prod(self._shape[axis] for axis in axes)
            if combinations > _LARGEST:
                names = ", ".join(template.parameters[axis].name for axis in axes)
                raise TemplateError(
                    f"{template.path}: constraints tie {combinations:,} raw combinations of {names} together, "
                    f"more than {_LARGEST:,}; list fewer values"
                )
        if self.raw_size > _LARGEST_SIZE:
            raise TemplateError(f"{template.path}: {self.raw_size:,} raw combinations are too many; list fewer values")

    @property
    def raw_size(self) -> int:
        """Combinations before constraints."""
        return math.prod(self._shape)

    @cached_property
    def _tied(self) -> tuple[tuple[int, ...], ...]:
        """Places of parameters that are filtered together: all, unless those have too many combinations."""
        if self.raw_size <= _LARGEST:
            return (tuple(range(len(self._shape))),)
        groups = [{axis} for axis in range(len(self._shape))]
        for axes in self._ties():
            touched = [group for group in groups if group & axes]
            groups = [group for group in groups if not group & axes] + [set().union(*touched)] * bool(touched)
        return tuple(tuple(sorted(group)) for group in sorted(groups, key=min))

    def _ties(self) -> Iterator[set[int]]:
        """Places of the parameters that a constraint, a derived name or a launch depends on."""
        front = self.template.front
        launches = [step for step in front.steps if isinstance(step, LaunchSpec)]
        places = {parameter.name: {axis} for axis, parameter in enumerate(self.template.parameters)}

        def read(*expressions: Expression | None) -> set[int]:
            names = (name for expression in expressions if expression is not None for name in expression.names)
            return set().union(*(places.get(name, set()) for name in names))

        for name, expression in front.derived:
            places[name] = read(expression)
        places["smem"] = set().union(*(read(launch.smem, launch.when) for launch in launches))
        yield from places.values()
        yield from (read(constraint.expr) for constraint in front.constraints)
        for launch in launches:
            yield read(launch.when, *launch.block)
            yield from (read(launch.when, expression) for expression in launch.grid)

    @cached_property
    def _parts(self) -> tuple[_Part, ...]:
        with self.template.named_errors():
            try:
                conditions = sorted(self._conditions(), key=lambda condition: condition.size)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise TemplateError(f"{self.template.path}: an expression has a value of no use: {error}") from error
            return tuple(self._part(axes, conditions) for axes in self._tied)

    def _part(self, axes: tuple[int, ...], conditions: list[NDArray[np.bool_]]) -> _Part:
        """What the conditions over these parameters leave; those that depend on nothing are among every part's."""
        shape = tuple(self._shape[axis] for axis in axes)
        apart = [axis for axis in range(len(self._shape)) if axis not in axes]
        # Most depend on a few parameters: joined from the smallest on, only the last are as large as the part.
        joined = np.ones((1,) * len(axes), dtype=bool)
        for condition in conditions:
            over = condition.reshape(condition.shape or (1,) * len(self._shape))
            if all(over.shape[axis] == 1 for axis in apart):
                joined = np.logical_and(joined, over.squeeze(axis=tuple(apart)))
        return _Part(axes, shape, np.flatnonzero(np.broadcast_to(joined, shape)))

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

    @cached_property
    def size(self) -> int:
        """How many configurations are valid."""
        return math.prod(len(part.valid) for part in self._parts)

    def configs(self) -> Iterator[dict[str, Value]]:
        """All valid configurations in a fixed order."""
        return (self[position] for position in range(self.size))

    def candidates(self) -> Iterator[Candidate]:
        return (self.candidate(config) for config in self.configs())

    def candidate(self, config: Config) -> Candidate:
        """The candidate of a configuration, its values in the template's order."""
        ordered = {parameter.name: config[parameter.name] for parameter in self.template.parameters}
        return make_candidate(self.template.name, self.template.hash, ordered)

    def __getitem__(self, position: int) -> dict[str, Value]:
        """The valid configuration at a position between 0 and size-1."""
        row = self._rows(np.array([position], dtype=np.int64))[0]
        return {p.name: p.values[i] for p, i in zip(self.template.parameters, row.tolist(), strict=True)}

    def _rows(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The valid configurations at these positions, a row each: the position of every parameter's value."""
        rows = np.empty((len(positions), len(self._shape)), dtype=np.int64)
        for part in reversed(self._parts):
            positions, places = np.divmod(positions, len(part.valid))
            for axis, column in zip(part.axes, part.columns(places), strict=True):
                rows[:, axis] = column
        return rows

    def contains(self, config: Config) -> bool:
        """Whether the configuration is valid (constant time once the space has been filtered)."""
        if not self.template.lists(config):
            return False
        row = [parameter.values.index(config[parameter.name]) for parameter in self.template.parameters]
        return bool(self.holds(np.array([row], dtype=np.int64).reshape(1, len(self._shape)))[0])

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
            return self._rows(np.arange(self.size))
        return self._rows(generator.choice(self.size, count, replace=False, shuffle=False))

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of the rows, written as those of `draw`, is valid."""
        held: NDArray[np.bool_] = np.logical_and.reduce([part.holds(rows) for part in self._parts])
        return held

    def starts(self) -> tuple[dict[str, Value], ...]:
        """The family's starts for this problem and device, as far as they are valid, best first; then its default.

        Where none of them is valid, the valid configuration with most values in common with the first.

        Raises:
            NoFeasibleConfiguration: there is none.
        """
        valid = tuple(self.valid_starts())
        if valid:
            return valid
        first = next(self._listed_starts(), None)
        return (self._nearest({**self.template.defaults, **dict(first.values if first else ())}),)

    def valid_starts(self) -> Iterator[dict[str, Value]]:
        """Those of `starts` that are valid as they are listed."""
        return (config for config, _ in self.known_starts())

    def known_starts(self) -> Iterator[tuple[dict[str, Value], Start | None]]:
        """The listed ones of `starts`, each with what its file says of it; then the default, if valid."""
        seen: set[tuple[tuple[str, Value], ...]] = set()
        for start in (*self._listed_starts(), None):
            config = {**self.template.defaults, **dict(start.values if start else ())}
            key = tuple(config.items())
            if key not in seen and self.why_not(config) is None:
                yield config, start
            seen.add(key)

    def default(self) -> dict[str, Value]:
        """The first of `starts`. Raises as it does."""
        return self.starts()[0]

    def _listed_starts(self) -> Iterator[Start]:
        with self.template.named_errors():
            for start in self.template.starts:
                if start.when({**self.problem.fields, "device": self.spec}):
                    yield start

    def _nearest(self, config: Config) -> dict[str, Value]:
        self._require_any()
        nearest: dict[str, Value] = {}
        for part in self._parts:
            parameters = [self.template.parameters[axis] for axis in part.axes]
            columns = part.columns(np.arange(len(part.valid)))
            agreement = np.zeros(len(part.valid), dtype=int)
            for column, p in zip(columns, parameters, strict=True):
                agreement += column == p.values.index(config[p.name])
            best = int(np.argmax(agreement))
            nearest |= {p.name: p.values[int(column[best])] for column, p in zip(columns, parameters, strict=True)}
        return {p.name: nearest[p.name] for p in self.template.parameters}

    def _require_any(self) -> None:
        if not self.size:
            why = self.why_not(self.template.defaults) or "every constraint is unmet somewhere"
            raise NoFeasibleConfiguration(
                f"template {self.template.name} has no valid configuration for {self.problem} on {self.spec.title}: "
                f"{why}"
            )

    def why_not(self, config: Config, *, called: bool = False) -> str | None:
        """Why a configuration is not valid, in one line; None when it is.

        `called`: of a kernel that exists, for which a search's own constraints (`search_only`) are no reason.
        """
        for parameter in self.template.parameters:
            if parameter.name not in config:
                return f"{parameter.name} has no value"
            if not is_listed(config[parameter.name], parameter.values):
                return f"{parameter.name}={config[parameter.name]} is not among {list(parameter.values)}"
        unknown = sorted(config.keys() - {parameter.name for parameter in self.template.parameters})
        if unknown:
            return f"{unknown[0]} is no parameter of {self.template.name}"
        with self.template.named_errors():
            return self._violated(config, called=called)

    def mended(self, config: Config, *, by_any: bool = False) -> dict[str, Value] | None:
        """The configuration if it is valid; else the same with one parameter at its default that makes it so, of those
        that the constraint names which it does not keep. None where none does, or where a value is not listed.

        `by_any`: then of all others, in the template's order; what breaks a limit of the device is mended by these.
        That is for who has the space filtered, as a search has.
        """

        def valid(config: Config) -> bool:
            return self.contains(config) if by_any else self.why_not(config) is None

        if not self.template.lists(config):
            return None
        if valid(config):
            return dict(config)
        with self.template.named_errors():
            namespace = self.namespace(config)
            broken = next((c for c in self.template.front.constraints if not c.expr(namespace)), None)
        named = frozenset[str]() if broken is None else frozenset(broken.expr.names)
        changes = {name: value for name, value in self.template.defaults.items() if config[name] != value}
        for name in sorted(changes, key=lambda name: name not in named):
            changed = {**config, name: changes[name]}
            if (by_any or name in named) and valid(changed):
                return changed
        return None

    def _violated(self, config: Config, *, called: bool) -> str | None:
        """The constraint or limit that a configuration of listed values does not keep."""
        namespace = self.namespace(config)
        for constraint in self.template.front.constraints:
            if not (called and constraint.search_only) and not constraint.expr(namespace):
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
