"""A kernel family's launch section as data for a C++ launcher that takes the shape at run time.

Fields that the kernels were rendered for (HS, dtype, mask) are fixed; the other whole-number fields become
arguments, and every size of the launches becomes C++ over them. Where a size has no C++ form, or the kernels
were rendered for the lengths themselves, those fields are fixed too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2.meta import find_undeclared_variables

from autotune.answers.export_expressions import Code, Known, NotInCpp, largest, text, to_cpp
from autotune.answers.export_maps import MapCode, shape_in_cpp
from autotune.core.dtypes import DTYPES
from autotune.core.errors import TemplateError
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.families.cpp_parameters import parameter_lists
from autotune.families.expressions import CUDA_TEXT, Expression
from autotune.families.frontmatter import LaunchSpec, MapAxis, TensorMapSpec, Workspace, ZeroSpec
from autotune.families.limits import MAX_BLOCK, MAX_GRID
from autotune.families.source import KernelSource
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.op import Op

_STATIC_SMEM = 48 * 1024
"""Dynamic shared memory that needs no attribute."""


@dataclass(frozen=True)
class Parameter:
    """A tensor among the launcher's arguments; `strided` ones are followed by their element strides."""

    spec: TensorSpec
    strided: bool

    @property
    def declaration(self) -> str:
        """As in the launcher's signature."""
        const = "const " if self.spec.role == "input" else ""
        pointer = f"{const}{DTYPES[self.spec.dtype].ctype}* {self.spec.name}"
        return f"{pointer}, const long long* {self.spec.name}_strides" if self.strided else pointer


@dataclass(frozen=True)
class Scratch:
    """A piece of the workspace."""

    name: str
    ctype: str
    nbytes: str


@dataclass(frozen=True)
class LaunchCode:
    """One kernel launch in C++."""

    kernel: str
    grid: str
    block: str
    cluster: tuple[str, ...]  # none: blocks on their own
    smem: str
    raises_limit: bool
    arguments: tuple[str, ...]
    condition: str | None
    overlaps: bool = False  # the launch before

    @property
    def attributes(self) -> int:
        """How many the launch has."""
        return bool(self.cluster) + self.overlaps


@dataclass(frozen=True)
class Check:
    """What must hold before anything is launched, in C++, and what to say where it does not: a format of `printf` and
    what goes into it."""

    condition: str
    complaint: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class ZeroCode:
    """Memory set to zero: scratch by name, or the output tensors that live in a storage."""

    scratch: str | None
    tensors: tuple[Parameter, ...]
    condition: str | None


class Launcher:
    """What the template of the launcher prints for one rendered candidate.

    Attributes:
        sizes: names of the shape arguments, in the op's order.
        fixed: whole-number fields that cannot change, with their values.
    """

    def __init__(self, template: Template, op: Op, problem: Problem, source: KernelSource, spec: DeviceSpec) -> None:
        self._template, self._op, self._problem, self._source, self._spec = template, op, problem, source, spec
        known = [field for field in op.fields if not field.implied or field.name in template.text]
        integers = [field.name for field in known if field.kind == "int"]
        rendered = self._rendered_names(integers)
        self.sizes = tuple(name for name in integers if name not in rendered)
        try:
            self._translate()
        except NotInCpp:
            self.sizes = ()
            self._translate()
        self.fixed = {name: problem.integer(name) for name in integers if name not in self.sizes}

    def _rendered_names(self, integers: Sequence[str]) -> set[str]:
        """Names the body was rendered with, those behind derived ones included where sizes decide them."""
        names = set(find_undeclared_variables(CUDA_TEXT.parse(self._template.body)))
        values = self._values(name for name in integers if name not in names)
        for name, expression in reversed(self._template.front.derived):
            if name in names and isinstance(values[name], Code | NotInCpp):
                names |= expression.names
        return names

    def _values(self, sizes: Iterable[str]) -> dict[str, Any]:
        """What expressions see where these sizes are the caller's."""
        known = {**self._problem.fields, **self._source.candidate.config, "device": self._spec}
        values: dict[str, Any] = {**known, **{name: Code(name) for name in sizes}}
        for name, expression in self._template.front.derived:
            values[name] = _lazily(expression, values)
        return values

    def _translate(self) -> None:
        front = self._template.front
        self._names: dict[str, Known | Code] = self._values(self.sizes)
        self.views: dict[str, str] = {}  # C++ value -> name
        self.maps: dict[str, MapCode] = {}  # by name
        self._limits: list[Check] = []
        self.scratch = tuple(self._scratch(w) for w in front.workspaces if self._holds(w.when) is not False)
        self.steps = tuple(self._step(step) for step in front.steps if self._holds(step.when) is not False)
        self.checks = (
            *self._sizes_in_range(), *self._rules(), *self._scalars_in_range(), *self._own_rules(), *self._limits,
        )  # fmt: skip

    def _cpp(self, expression: Expression) -> Known | Code:
        for name in expression.names:
            if isinstance(self._names.get(name), NotInCpp):
                raise NotInCpp(f"{name} has no C++ form")
        return to_cpp(expression, self._names)

    def _holds(self, when: Expression | None) -> Known | Code:
        return True if when is None else self._cpp(when)

    def _condition(self, when: Expression | None) -> str | None:
        holds = self._holds(when)
        return holds.text if isinstance(holds, Code) else None

    def _scratch(self, workspace: Workspace) -> Scratch:
        dtype = DTYPES[self._problem.dtype if workspace.dtype == "dtype" else workspace.dtype]
        sizes = [self._cpp(size) for size in workspace.shape]
        factors = [size.within(1) if isinstance(size, Code) else str(size) for size in sizes]
        return Scratch(workspace.name, dtype.ctype, " * ".join([str(dtype.size), *factors]))

    def _step(self, step: LaunchSpec | ZeroSpec) -> LaunchCode | ZeroCode:
        if isinstance(step, ZeroSpec):
            return self._zero(step)
        smem = self._cpp(step.smem)
        types = self._parameter_types(step)
        self._limits += self._limits_of(step, smem)
        return LaunchCode(
            kernel=step.kernel,
            grid=self._sizes(step.grid),
            block=self._sizes(step.block),
            cluster=tuple(text(self._cpp(size)) for size in (*step.cluster, Expression("1"), Expression("1"))[:3])
            if step.cluster
            else (),
            smem=text(smem),
            raises_limit=isinstance(smem, Code) or int(smem) > _STATIC_SMEM,
            arguments=tuple(self._argument(a, t) for a, t in zip(step.args, types, strict=True)),
            condition=self._condition(step.when),
            overlaps=step.overlaps is not None
            and self._known(step.overlaps, f"{step.kernel} overlaps the launch before it"),
        )

    def _known(self, expression: Expression, what: str) -> bool:
        """A condition that no size decides that the launcher gets."""
        holds = self._cpp(expression)
        if isinstance(holds, Code):
            raise NotInCpp(f"whether {what} depends on a size")
        return bool(holds)

    def _parameter_types(self, step: LaunchSpec) -> list[str]:
        """Declared types of the kernel's parameters.

        Raises:
            TemplateError: no definition of it is seen that takes so many.
        """
        for parameters in parameter_lists(step.kernel, self._source.body, self._source.includes):
            if len(parameters) == len(step.args):
                return [parameter.type for parameter in parameters]
        raise TemplateError(
            f"{self._template.path}: cannot export a launch of {step.kernel}: no definition with {len(step.args)} "
            "parameters is seen in the source; write it out where a macro makes it"
        )

    def _zero(self, step: ZeroSpec) -> ZeroCode:
        if any(workspace.name == step.buffer for workspace in self._template.front.workspaces):
            return ZeroCode(step.buffer, (), self._condition(step.when))
        if self.sizes:
            raise NotInCpp("the shapes of tensors are known for one problem only")
        storage = self._tensors[step.buffer].storage
        tensors = tuple(p for p in self.parameters if p.spec.storage == storage)
        return ZeroCode(None, tensors, self._condition(step.when))

    def _sizes(self, sizes: Sequence[Expression]) -> str:
        texts = [text(self._cpp(size)) for size in sizes]
        while len(texts) > 1 and texts[-1] == "1":
            texts.pop()
        return texts[0] if len(texts) == 1 else f"dim3({', '.join(texts)})"

    def _argument(self, argument: str, declared: str) -> str:
        if argument.endswith(".view"):
            return self._view(argument.removesuffix(".view"), declared)
        for spec in self._template.front.tensor_maps:
            if spec.name == argument:
                self.maps[argument] = self._map(spec)
                return argument
        if argument in self._tensors:
            return self._pointer(argument, declared)
        if argument in self._op.scalars(self._problem) or any(s.name == argument for s in self.scratch):
            return argument
        return text(self._cpp(Expression(argument)))

    def _view(self, name: str, declared: str) -> str:
        """Name of the view that is passed; views are made once, before the first launch."""
        element = declared.partition("<")[2].rpartition(",")[0].strip()
        strides = ", ".join(f"{name}_strides[{axis}]" for axis in range(len(self._tensors[name].shape)))
        value = f"{declared}{{{self._pointer(name, element + '*')}, {{{strides}}}}}"
        if value not in self.views:
            self.views[value] = f"{name}_view" + ("" if f"{name}_view" not in self.views.values() else "_2")
        return self.views[value]

    def _map(self, spec: TensorMapSpec) -> MapCode:
        workspace = next((w for w in self._template.front.workspaces if w.name == spec.tensor), None)
        if workspace is not None:
            sizes = [self._cpp(size) for size in workspace.shape]
            shape = tuple(text(size) for size in sizes)
            dtype = self._problem.dtype if workspace.dtype == "dtype" else workspace.dtype
            factors = [size.within(1) if isinstance(size, Code) else str(size) for size in sizes]
            strides = tuple(" * ".join(factors[axis + 1 :]) or "1" for axis in range(len(shape)))
        else:
            found = shape_in_cpp(self._op, self._problem, spec.tensor, self.sizes)
            if found is None:
                raise NotInCpp(f"the shape of {spec.tensor} has no C++ form")
            shape, dtype = found, self._tensors[spec.tensor].dtype
            strides = tuple(f"{spec.tensor}_strides[{axis}]" for axis in range(len(shape)))
        axes = spec.axes or tuple(MapAxis(axis) for axis in reversed(range(len(shape))))
        dimensions = [self._dimension(axis, shape[axis.axis], strides[axis.axis]) for axis in axes]
        extents, apart = (tuple(values) for values in zip(*dimensions, strict=True))
        box = [text(self._cpp(size)) for size in spec.box]
        swizzle = int(text(self._cpp(spec.swizzle)))
        filled = (*box, *["1"] * (len(axes) - len(box)))
        anywhere = spec.anywhere is not None and self._known(spec.anywhere, f"rows of {spec.tensor} begin anywhere")
        return MapCode(spec.name, spec.tensor, dtype, extents, apart, filled, swizzle, anywhere)

    def _dimension(self, axis: MapAxis, extent: str, stride: str) -> tuple[str, str]:
        """A map's dimension: its extent and its stride."""
        if axis.by is None:
            return extent, stride
        by = self._cpp(axis.by)
        factor = by.within(0) if isinstance(by, Code) else str(by)
        return (text(by), stride) if axis.part == "%" else (f"{extent} / {factor}", f"{stride} * {factor}")

    def _pointer(self, name: str, declared: str) -> str:
        """The tensor's pointer; a kernel that declares an input without const gets it so."""
        drops_const = self._tensors[name].role == "input" and not declared.startswith("const ")
        return f"const_cast<{declared}>({name})" if drops_const else name

    @cached_property
    def _tensors(self) -> dict[str, TensorSpec]:
        first = set(self._op.in_place(self._problem).values())  # the caller's own tensor holds what it begins with
        return {tensor.name: tensor for tensor in self._op.tensors(self._problem) if tensor.name not in first}

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Tensors in the op's order; those that some kernel takes as a view or a tensor map are strided."""
        front = self._template.front
        mapped = {spec.name: spec.tensor for spec in front.tensor_maps}
        passed = {argument for step in front.steps if isinstance(step, LaunchSpec) for argument in step.args}
        strided = {a.removesuffix(".view") for a in passed if a.endswith(".view")} | {mapped.get(a) for a in passed}
        return tuple(Parameter(tensor, name in strided) for name, tensor in self._tensors.items())

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the op's float arguments."""
        return tuple(self._op.scalars(self._problem))

    @property
    def zeroes_outputs(self) -> bool:
        """Whether a step sets output tensors to zero."""
        return any(isinstance(step, ZeroCode) and step.tensors for step in self.steps)

    def _sizes_in_range(self) -> Iterator[Check]:
        for field in self._op.fields:
            if field.name in self.sizes:
                within = f"{field.name} >= {field.minimum} && {field.name} <= {field.maximum}"
                complaint = f"{field.name}=%lld must be from {field.minimum} to {field.maximum}"
                yield Check(within, complaint, (field.name,))

    def _rules(self) -> Iterator[Check]:
        for rule in self._op.rules(self._problem):
            values = [name if name in self.sizes else self._problem.integer(name) for name in (rule.left, rule.right)]
            texts = [str(value) for value in values]
            if set(texts) & set(self.sizes):
                condition = f"{texts[0]} == {texts[1]}" if rule.relation == "equal" else f"{texts[0]} % {texts[1]} == 0"
                complaint = _literal(rule.complaint(*("%lld" if text in self.sizes else text for text in texts)))
                yield Check(condition, complaint, tuple(text for text in texts if text in self.sizes))

    def _scalars_in_range(self) -> Iterator[Check]:
        for name in self.scalars:
            positive = name in self._op.positive
            condition = f"std::isfinite({name})" + (f" && {name} > 0.0f" if positive else "")
            yield Check(condition, f"{name}=%g must be finite{' and above 0' if positive else ''}", (name,))

    def _own_rules(self) -> Iterator[Check]:
        """What the family supports and its constraints."""
        front = self._template.front
        self._names["smem"] = largest([self._cpp(step.smem) for step in front.steps if isinstance(step, LaunchSpec)])
        reasons = [(supported.expr, f"the kernels need {supported.needed}") for supported in front.supports]
        kept = [constraint for constraint in front.constraints if not constraint.search_only]
        reasons += [(constraint.expr, f"{constraint.why} ({constraint.expr.text})") for constraint in kept]
        for expression, why in reasons:
            value = self._cpp(expression)
            if isinstance(value, Code):
                shape = ", ".join(f"{name}=%lld" for name in self.sizes)
                yield Check(value.text, f"{shape}: {_literal(why)}", self.sizes)

    def _limits_of(self, step: LaunchSpec, smem: Known | Code) -> Iterator[Check]:
        """The device's limits on one launch, and those of 32-bit arguments, where they depend on the shape."""
        holds = self._holds(step.when)
        unless = f"!({holds.text}) || " if isinstance(holds, Code) else ""

        def at_most(size: Known | Code, most: int, what: str) -> Iterator[Check]:
            if isinstance(size, Code):
                within = f"{size.within(0)} <= {most}"
                complaint = f"kernel {step.kernel}: {what} %lld; at most {most} is possible"
                yield Check(f"{unless}{within}", complaint, (f"static_cast<long long>({size.text})",))

        yield from at_most(smem, self._spec.max_shared_memory, "bytes of shared memory:")
        for what, sizes, most in (("grid", step.grid, MAX_GRID), ("block", step.block, MAX_BLOCK)):
            for axis, size, limit in zip("xyz", sizes, most, strict=False):
                yield from at_most(self._cpp(size), limit, f"size of the {what} along {axis}:")
        types = self._parameter_types(step)
        for argument, declared in zip(step.args, types, strict=True):
            if declared == "int" and argument not in self.sizes:
                yield from at_most(self._cpp(Expression(argument)), 2**31 - 1, f"argument {argument}:")


def _literal(words: str) -> str:
    """Text as part of a format that stands between double quotes."""
    kept = words.replace("%lld", "\0").replace("\\", "\\\\").replace('"', "'").replace("%", "%%")
    return kept.replace("\0", "%lld")


def _lazily(expression: Expression, names: Mapping[str, Known | Code]) -> Any:
    """The value, or the NotInCpp that using it would raise: some derived names only serve constraints."""
    try:
        return to_cpp(expression, names)
    except NotInCpp as error:
        return error
