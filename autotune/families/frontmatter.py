"""Reads the TOML front matter of a template into typed parts, and rejects what it does not know."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core.arithmetic import FULL, read_arithmetic
from autotune.core.errors import TemplateError
from autotune.core.values import Value
from autotune.families.expressions import Expression
from autotune.families.flags import read_flags
from autotune.families.front_values import dtype_of, expression, identifier, items_of, only, optional

_OPENING = "{#---"
_CLOSING = "---#}"
_KEYS = frozenset(
    ("summary", "op", "source", "arch", "supports", "deterministic", "params", "defaults", "derived", "constraints")
) | {"workspace", "launch", "problem", "tensors", "cost", "historical", "arithmetic", "tensor_maps", "tensor_cores"} | {
    "reference", "inputs", "flags", "tolerance"
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A tunable and the values it may take."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Constraint:
    """A condition on a configuration or a problem, with the reason a user is shown; of some problems it is empty.

    `search_only`: kernels that do not keep it compute the same without use of it, so that no launcher refuses a shape.
    """

    expr: Expression
    why: str
    search_only: bool = False

    @property
    def needed(self) -> str:
        return f"{self.expr.text} ({self.why})" if self.why else self.expr.text


@dataclass(frozen=True)
class Workspace:
    """Scratch memory; `when` tells whether a configuration needs it."""

    name: str
    shape: tuple[Expression, ...]
    dtype: str
    when: Expression | None


@dataclass(frozen=True)
class MapAxis:
    """A dimension of a tensor map: an axis of the tensor, or a `part` of it.

    "%": so many neighbouring indices as `by` says; "//": the groups of so many.
    """

    axis: int
    part: str = ""
    by: Expression | None = None


@dataclass(frozen=True)
class TensorMapSpec:
    """A tensor map that kernels take under this name: a tensor or workspace, and the box that a copy of TMA moves.

    `axes`: the map's dimensions, the contiguous one first; None: the tensor's axes from the last to the first. `box`
    follows that order, 1 where it ends. `swizzle` is in bytes; 0: none. Where `anywhere` holds, kernels take maps of
    rows that begin at any element.
    """

    name: str
    tensor: str
    axes: tuple[MapAxis, ...] | None
    box: tuple[Expression, ...]
    swizzle: Expression
    anywhere: Expression | None = None


@dataclass(frozen=True)
class LaunchSpec:
    """A kernel launch whose sizes are still expressions."""

    kernel: str
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    smem: Expression
    args: tuple[str, ...]
    when: Expression | None
    cluster: tuple[Expression, ...] = ()
    overlaps: Expression | None = None


@dataclass(frozen=True)
class ZeroSpec:
    """A step that sets a buffer to zero."""

    buffer: str
    when: Expression | None


@dataclass(frozen=True)
class TensorDeclaration:
    """A tensor of a user's own op."""

    name: str
    shape: tuple[Expression, ...]
    dtype: str  # a dtype, or "dtype" for the problem's
    role: str


@dataclass(frozen=True)
class Tolerance:
    """What a result may be apart from the reference: `absolute`, and `relative` to the reference's size."""

    absolute: float = 0.0
    relative: float = 0.0


@dataclass(frozen=True)
class FrontMatter:
    """Everything the front matter says."""

    op: str
    summary: str
    source: str
    arch: str | None
    supports: tuple[Constraint, ...]
    deterministic: Expression
    parameters: tuple[Parameter, ...]
    defaults: tuple[tuple[str, Value], ...]
    derived: tuple[tuple[str, Expression], ...]
    constraints: tuple[Constraint, ...]
    workspaces: tuple[Workspace, ...]
    steps: tuple[LaunchSpec | ZeroSpec, ...]
    problem: tuple[tuple[str, Value | tuple[str, ...]], ...]
    tensors: tuple[TensorDeclaration, ...]
    flops: Expression | None
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    tensor_cores: bool = False
    historical: bool = False
    arithmetic: str = FULL
    reference: str = ""
    inputs: str = ""
    flags: tuple[str, ...] = ()
    tolerance: tuple[tuple[str, Tolerance], ...] = ()


def split_template(text: str, where: str) -> tuple[str, str]:
    """Front matter and body.

    Raises:
        TemplateError: the file does not start with front matter, or it never ends.
    """
    if not text.startswith(_OPENING):
        raise TemplateError(f"{where}: a template starts with its front matter, '{_OPENING}' on the first line")
    end = text.find(_CLOSING)
    if end < 0:
        raise TemplateError(f"{where}: the front matter is never closed; end it with a line '{_CLOSING}'")
    return text[len(_OPENING) : end], text[end + len(_CLOSING) :].lstrip("\n")


def parse_front_matter(text: str, where: str) -> FrontMatter:
    """The typed front matter.

    Raises:
        TemplateError: with file, and line where TOML knows it, and what is wrong.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TemplateError(f"{where}: front matter is not valid TOML: {error}") from error
    except RecursionError as error:
        raise TemplateError(f"{where}: front matter is nested too deeply") from error
    try:
        return _Reader(data).front_matter()
    except TemplateError as error:
        raise type(error)(f"{where}: {error}") from error


class _Reader:
    """Turns plain TOML data into a FrontMatter; every error names the key."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        if "suggestions" in data:
            raise TemplateError(
                "[[suggestions]] have left the front matter: write each as a [[start]] with 'when', 'values', "
                "'device', 'problem' and 'origin' into NAME.starts.toml beside the template; see docs/kernels.md"
            )
        unknown = sorted(data.keys() - _KEYS)
        if unknown:
            raise TemplateError(f"unknown key {unknown[0]!r} in the front matter; known: {', '.join(sorted(_KEYS))}")

    def front_matter(self) -> FrontMatter:
        parameters = self._parameters()
        cost = self._table("cost")
        return FrontMatter(
            op=identifier(self._text("op"), "op"),
            summary=self._text("summary"),
            source=self._text("source", ""),
            arch=self._arch(),
            supports=tuple(map(self._supported, self._list("supports"))),
            deterministic=Expression(self._text("deterministic", "true")),
            parameters=parameters,
            defaults=self._defaults(parameters),
            derived=tuple((identifier(n, "derived"), expression(e)) for n, e in self._table("derived").items()),
            constraints=tuple(self._constraint(item) for item in self._list("constraints")),
            workspaces=tuple(self._workspace(n, item) for n, item in self._table("workspace").items()),
            steps=self._steps(),
            problem=tuple((n, tuple(v) if isinstance(v, list) else v) for n, v in self._table("problem").items()),
            tensors=self._tensors(),
            flops=expression(cost["flops"]) if "flops" in cost else None,
            tensor_maps=tuple(self._tensor_map(n, item) for n, item in self._table("tensor_maps").items()),
            tensor_cores=self._flag("tensor_cores"),
            historical=self._flag("historical"),
            arithmetic=read_arithmetic(self._data.get("arithmetic", FULL)),
            reference=self._text("reference", ""),
            inputs=self._text("inputs", ""),
            flags=read_flags(self._list("flags")),
            tolerance=self._tolerances(),
        )

    def _text(self, key: str, default: str | None = None) -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise TemplateError(f"the front matter needs a text {key!r}, got {value!r}")
        if not value.isprintable():
            raise TemplateError(f"{key!r} is to be one line without control characters, got {value!r}")
        return value

    def _list(self, key: str) -> list[Any]:
        value = self._data.get(key, [])
        if not isinstance(value, list):
            raise TemplateError(f"{key!r} must be a list, got {value!r}")
        return value

    def _table(self, key: str) -> dict[str, Any]:
        value = self._data.get(key, {})
        if not isinstance(value, dict):
            raise TemplateError(f"[{key}] must be a table, got {value!r}")
        return value

    def _arch(self) -> str | None:
        arch = self._data.get("arch")
        if arch is not None and not re.fullmatch(r"sm_\d+[af]?", str(arch)):
            raise TemplateError(f"arch={arch!r} is not a compute capability such as 'sm_80'")
        return arch

    def _flag(self, key: str) -> bool:
        value = self._data.get(key, False)
        if not isinstance(value, bool):
            raise TemplateError(f"{key}={value!r} is neither true nor false")
        return value

    def _parameters(self) -> tuple[Parameter, ...]:
        parameters = []
        for name, values in self._table("params").items():
            if not isinstance(values, list) or not values:
                raise TemplateError(f"parameter {name} needs a list of at least one value, got {values!r}")
            if not all(isinstance(value, bool | int | float | str) for value in values):
                raise TemplateError(f"parameter {name} takes numbers, texts and booleans, got {values!r}")
            if not all(value.isprintable() for value in values if isinstance(value, str)):
                raise TemplateError(f"parameter {name}: texts are one line without control characters, got {values!r}")
            if len({(type(value), value) for value in values}) != len(values):
                raise TemplateError(f"parameter {name} lists a value twice: {values!r}")
            parameters.append(Parameter(identifier(name, "parameter"), tuple(values)))
        return tuple(parameters)

    def _defaults(self, parameters: tuple[Parameter, ...]) -> tuple[tuple[str, Value], ...]:
        given, known = self._table("defaults"), {p.name: p.values for p in parameters}
        for name, value in given.items():
            if name not in known:
                raise TemplateError(f"[defaults] names {name!r}, which is no parameter")
            if value not in known[name]:
                raise TemplateError(f"the default {name}={value!r} is not among its values {list(known[name])!r}")
        return tuple((p.name, given.get(p.name, p.values[0])) for p in parameters)

    def _supported(self, item: Any) -> Constraint:
        return self._constraint(item) if isinstance(item, dict) else Constraint(expression(item), "")

    def _constraint(self, item: Any) -> Constraint:
        only(item, {"expr", "why", "search_only"}, "constraints")
        if not item.get("why"):
            raise TemplateError(f"constraint {item.get('expr')!r} needs a 'why': the reason that a user is shown")
        search_only = item.get("search_only", False)
        if not isinstance(search_only, bool):
            raise TemplateError(f"constraint {item.get('expr')!r}: search_only is true or false, got {search_only!r}")
        return Constraint(expression(item.get("expr")), str(item["why"]), search_only)

    def _workspace(self, name: str, item: Any) -> Workspace:
        only(item, {"shape", "dtype", "when"}, f"workspace.{name}")
        shape = tuple(map(expression, items_of(item, "shape", f"workspace {name}")))
        return Workspace(identifier(name, "workspace"), shape, dtype_of(item, name), optional(item.get("when")))

    def _tensor_map(self, name: str, item: Any) -> TensorMapSpec:
        only(item, {"tensor", "axes", "box", "swizzle", "anywhere"}, f"tensor_maps.{name}")
        tensor, axes = identifier(item.get("tensor"), f"tensor map {name}: tensor"), item.get("axes")
        if axes is not None and not isinstance(axes, list):
            raise TemplateError(f"tensor map {name}: axes must be a list, got {axes!r}")
        order = None if axes is None else tuple(_map_axis(name, axis) for axis in axes)
        box = tuple(map(expression, items_of(item, "box", f"tensor map {name}")))
        swizzle = expression(item.get("swizzle", 0))
        anywhere = optional(item.get("anywhere"))
        return TensorMapSpec(identifier(name, "tensor map"), tensor, order, box, swizzle, anywhere)

    def _steps(self) -> tuple[LaunchSpec | ZeroSpec, ...]:
        steps = tuple(self._step(item) for item in self._list("launch"))
        if not any(isinstance(step, LaunchSpec) for step in steps):
            raise TemplateError("the front matter needs at least one [[launch]] with a kernel")
        return steps

    def _step(self, item: Any) -> LaunchSpec | ZeroSpec:
        only(item, {"kernel", "grid", "block", "cluster", "smem", "args", "when", "overlaps", "zero"}, "launch")
        when = optional(item.get("when"))
        if "zero" in item:
            return ZeroSpec(str(item["zero"]), when)
        if not item.get("kernel"):
            raise TemplateError("[[launch]] needs 'kernel'")
        where = f"[[launch]] {item['kernel']}"
        grid, block = (tuple(map(expression, items_of(item, key, where))) for key in ("grid", "block"))
        cluster = tuple(map(expression, items_of(item, "cluster", where))) if "cluster" in item else ()
        if max(map(len, (grid, block, cluster))) > 3:
            raise TemplateError(f"{where}: grid, block and cluster have at most 3 axes")
        smem = expression(item.get("smem", "0"))
        args = tuple(map(str, items_of(item, "args", where)))
        overlaps = optional(item.get("overlaps"))
        return LaunchSpec(identifier(item["kernel"], "kernel"), grid, block, smem, args, when, cluster, overlaps)

    def _tolerances(self) -> tuple[tuple[str, Tolerance], ...]:
        outputs = [tensor.name for tensor in self._tensors() if tensor.role != "input"]
        for name in self._table("tolerance"):
            if name not in outputs:
                raise TemplateError(
                    f"[tolerance] names {name!r}, which is no output of [tensors]; there are: "
                    f"{', '.join(outputs) or 'none (a built-in op judges its results by itself)'}"
                )
        return tuple((name, _tolerance(name, item)) for name, item in self._table("tolerance").items())

    def _tensors(self) -> tuple[TensorDeclaration, ...]:
        return tuple(self._tensor(name, item) for name, item in self._table("tensors").items())

    def _tensor(self, name: str, item: Any) -> TensorDeclaration:
        only(item, {"shape", "dtype", "role"}, f"tensors.{name}")
        role = item.get("role")
        if role not in ("input", "output", "inout"):
            raise TemplateError(
                f"tensor {name} needs role = 'input', 'output' or 'inout' (changed in place), got {role!r}"
            )
        shape = tuple(map(expression, items_of(item, "shape", f"tensor {name}")))
        return TensorDeclaration(identifier(name, "tensor"), shape, dtype_of({"dtype": "dtype", **item}, name), role)


def _tolerance(name: str, item: Any) -> Tolerance:
    only(item, {"absolute", "relative"}, f"tolerance.{name}")
    for key, value in item.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
            raise TemplateError(f"[tolerance.{name}] {key}={value!r} is no number from 0 on")
    if not item:
        raise TemplateError(f"[tolerance] {name} needs absolute, relative or both: {{ absolute = 1e-3 }}")
    return Tolerance(float(item.get("absolute", 0.0)), float(item.get("relative", 0.0)))


def _map_axis(name: str, axis: Any) -> MapAxis:
    found = re.fullmatch(r"(\d+)(?:\s*(%|//)\s*(.+))?", str(axis))
    if found is None or isinstance(axis, bool):
        raise TemplateError(
            f"tensor map {name}: {axis!r} is no axis; write 1, or '1 % GROUP' and '1 // GROUP' for its parts"
        )
    return MapAxis(int(found[1]), found[2] or "", optional(found[3]))
