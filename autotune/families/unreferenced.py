"""Ops of candidates that are checked: results are not compared, so a user's op needs no reference."""

from typing import Any

from autotune.core.errors import UsageError
from autotune.families.op_ref import OpRef, own_op
from autotune.families.template import load_template
from autotune.ops.op import Op
from autotune.ops.registry import register


def resolve(ref: OpRef) -> Op:
    """The op. An empty text as its reference stands for none.

    Raises:
        UsageError: the op is not known, or its reference cannot be loaded.
    """
    if ref.template is None or ref.reference != "":
        return ref.resolve()
    return register(own_op(load_template(ref.template), _no_reference, ref.inputs))


def _no_reference(fields: Any, arrays: Any) -> Any:  # noqa: ARG001 - the signature of a reference
    raise UsageError("give the op's CPU reference with --reference module:function")
