"""The ops the engine can tune, by name."""

from collections.abc import Mapping

from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.ops.attention import Backward, Forward
from autotune.ops.matmul import Matmul
from autotune.ops.op import Op
from autotune.ops.permute import Permute
from autotune.ops.softmax import Softmax, SoftmaxBackward

_OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Make an op known under its name; registering another one under the same name replaces it."""
    _OPS[op.name] = op
    return op


def get_op(name: str) -> Op:
    """The op of that name.

    Raises:
        ProblemError: there is none; the message lists those there are.
    """
    if not isinstance(name, str) or name not in _OPS:
        raise ProblemError(
            f"unknown op {name!r}; known: {', '.join(_OPS)} (your own: --template my.cu.j2 --reference module:function)"
        )
    return _OPS[name]


def op_names() -> tuple[str, ...]:
    """Names of the registered ops."""
    return tuple(_OPS)


def stored_problem(op: str, fields: Mapping[str, Value]) -> Problem:
    """The problem with these fields as a database keeps them; the op need not be known."""
    return Problem.of(op, fields, _OPS[op].implied if op in _OPS else ())


def problem_of(key: str) -> Problem:
    """The problem with this key.

    Raises:
        ProblemError: an unknown op, field or value.
    """
    op, *fields = key.split(" ")
    return get_op(op).problem(**dict(field.partition("=")[::2] for field in fields))


BUILTIN = tuple(register(op).name for op in (Forward(), Backward(), Matmul(), Softmax(), SoftmaxBackward(), Permute()))
"""Names of the ops that need no declaration."""

FIELD_OPTIONS = frozenset(field.name for op in BUILTIN for field in get_op(op).fields if field.has_option)
"""Names of fields that have an option of their own on the command line; others, of ops of one's own, go by `--set`."""
