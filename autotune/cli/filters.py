"""Filters of the commands that read a database, checked: what no record can be of is no empty list but a mistake."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.core.errors import ProblemError, UsageError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.core.words import plain
from autotune.ops.op import Field
from autotune.ops.registry import get_op, op_names

if TYPE_CHECKING:
    from autotune.store.store import Store

Known = Callable[[], Iterable[Problem]]
"""The problems of a database; called only where a filter is not of an op that is known without it."""


def problems_of(store: "Store") -> Known:
    """Those of an open store."""
    return lambda: [summary.problem for summary in store.problems()]


def check_op(op: str | None, known: Known) -> None:
    """Whether a filter names an op: a registered one, or one that the database has records of.

    Raises:
        UsageError: it does not; the message lists those there are.
    """
    if op is None or op in op_names():
        return
    names = list(dict.fromkeys([*op_names(), *(problem.op for problem in known())]))
    if op not in names:
        raise UsageError(f"unknown op {op!r}; known: {', '.join(names)}")


def check_fields(op: str | None, fields: Mapping[str, Sequence[Value]], known: Known) -> dict[str, list[Value]]:
    """Values that problems' fields are filtered by, as problems have them: `yes` is also 1, and a scale of 1 is 1.0.

    Raises:
        UsageError: an unknown op, a field that it (without one: any op) does not have, or an impossible value.
    """
    check_op(op, known)
    ops = [name for name in op_names() if op in {None, name}]
    return {name: _checked(op, ops, name, values, known) for name, values in fields.items()}


def _checked(op: str | None, ops: Sequence[str], name: str, values: Sequence[Value], known: Known) -> list[Value]:
    fields = [(of, field) for of in ops for field in get_op(of).fields if field.name == name]
    found: list[Value] = []
    for value in values:
        meant, refusals = _parsed(fields, value)
        if not meant and not _could_be(value, stored := _stored(op, name, known)):
            raise UsageError(_complaint(op, ops, name, value, [field for _, field in fields], refusals, stored, known))
        found += [*meant, value]
    return found


def _parsed(fields: Sequence[tuple[str, Field]], value: Value) -> tuple[list[Value], list[str]]:
    """What a value is to the fields of that name, and why it is nothing to the others."""
    meant: list[Value] = []
    refusals = []
    for op, field in fields:
        try:
            meant.append(field.parse(op, value))
        except ProblemError as refusal:
            refusals.append(str(refusal))
    return meant, refusals


def _stored(op: str | None, name: str, known: Known) -> list[Value]:
    """The values of a field in records of ops that are known by them alone: users' own."""
    own = [problem for problem in known() if problem.op not in op_names() and op in {None, problem.op}]
    return [problem.fields[name] for problem in own if name in problem.fields]


def _could_be(value: Value, stored: Sequence[Value]) -> bool:
    """Whether it is a value of a field that has these: one of them, or a number where they are numbers."""
    numbers = any(_is_number(one) for one in stored)
    return plain(value) in map(plain, stored) or (numbers and _is_number(value))


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _complaint(
    op: str | None, ops: Sequence[str], name: str, value: Value, fields: Sequence[Field], refusals: Sequence[str],
    stored: Sequence[Value], known: Known,
) -> str:  # fmt: skip
    choices = dict.fromkeys([*(choice for field in fields for choice in field.choices), *map(plain, stored)])
    if refusals and not all(field.choices for field in fields):
        return refusals[0]
    if choices:
        return f"{'' if op is None else f'op {op!r}: '}{name}={plain(value)!r} is not one of {', '.join(choices)}"
    names = [field.name for of in ops for field in get_op(of).fields]
    names += [
        field for problem in known() if op in {None, problem.op} and problem.op not in op_names()
        for field in problem.fields
    ]  # fmt: skip
    whose, their = ("no op has a", "their") if op is None else (f"op {op!r} has no", "its")
    return f"{whose} field {name!r}; {their} fields are {', '.join(dict.fromkeys(names))}"
