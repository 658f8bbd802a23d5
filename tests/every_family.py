"""All families there are, and problems fitted to what each of them supports.

Tests that take their families from here find a new one by themselves, whatever its op.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import pytest

from autotune.compilers.nvcc import ARCHITECTURES
from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.op import Field, Op
from autotune.ops.registry import BUILTIN, get_op

Fields = Mapping[str, Value]

FAMILIES = tuple(family for op in BUILTIN for family in builtin_templates(op))
GPU_OF = dict(zip(ARCHITECTURES, ("t4", "a100", "a10", "l4", "h200", "b200", "rtx5090"), strict=True))
_TRIED_FIRST = ("HS", "dtype")
HEAD_SIZES = (64, 128, 32, 96, 192, 256, 80, 40)


def name_of(family: Template) -> str:
    """As it is called in the names of tests."""
    return f"{family.op}-{family.name}"


def families_of(*ops: str) -> tuple[Template, ...]:
    """The families of some ops."""
    return tuple(family for family in FAMILIES if family.op in ops)


def each_family_of(*ops: str) -> pytest.MarkDecorator:
    """A test of every family of some ops, or of all."""
    return pytest.mark.parametrize("family", families_of(*(ops or BUILTIN)), ids=name_of)


@cache
def home(family: Template) -> DeviceSpec:
    """The GPU for which a family is emulated: an H200, or the first on which it runs."""
    specs = (gpu(name) for name in ("h200", *GPU_OF.values()))
    return next(spec for spec in specs if fitted(family, {}, spec) is not None)


def fitted(family: Template, fields: Fields, spec: DeviceSpec, turn: int = 0) -> Problem | None:
    """The problem, or the one most like it that the family supports; None where there is none.

    What it asks for is changed in this order: dtype (those it has take turns), head size, other choices, as many key
    heads as query heads, as many keys as queries.
    """
    return next((p for p in _alike(family.op, fields, turn) if family.why_unsupported(p, spec) is None), None)


def supported(family: Template, fields: Fields, spec: DeviceSpec, turn: int = 0) -> Problem:
    """`fitted` where there must be one."""
    problem = fitted(family, fields, spec, turn)
    assert problem is not None, f"{name_of(family)} supports nothing like {dict(fields)} on {spec.name}"
    return problem


def dtypes_of(family: Template, spec: DeviceSpec) -> tuple[str, ...]:
    """Those in which the family computes something."""
    choices = next(field.choices for field in get_op(family.op).fields if field.name == "dtype")
    fitting = (fitted(family, {"dtype": dtype}, spec) for dtype in choices)
    return tuple(dict.fromkeys(problem.dtype for problem in fitting if problem is not None))


def _alike(op_name: str, fields: Fields, turn: int) -> Iterator[Problem]:
    op = get_op(op_name)
    base = _filled(op, fields)
    fields_of = {field.name: field for field in op.fields}
    # In a product the last varies first: what families differ in most.
    names = [name for name in fields_of if name not in _TRIED_FIRST] + [n for n in _TRIED_FIRST if n in fields_of]
    choices = {name: dict.fromkeys((base[name], *_others(fields_of[name], base, turn))) for name in names}
    for values in product(*choices.values()):
        try:
            yield op.problem(**dict(zip(choices, values, strict=True)))
        except ProblemError:
            continue


def _filled(op: Op, fields: Fields) -> dict[str, Any]:
    """A value for each of the op's fields, whether they go together or not."""
    values: dict[str, Any] = {}
    for field in op.fields:
        values[field.name] = fields.get(field.name, values[field.default_from] if field.default_from else field.default)
    return values


def _others(field: Field, base: Fields, turn: int) -> tuple[Any, ...]:
    """What else a field may be, in order of preference."""
    if field.name == "dtype":
        start = turn % len(field.choices)
        return (*field.choices[start:], *field.choices[:start])
    if field.name == "HS":
        return HEAD_SIZES
    if field.name in ("NH_kv", "T_kv"):
        return (base.get(field.name.removesuffix("_kv"), base[field.name]),)
    return (True, False) if field.kind == "bool" else field.choices
