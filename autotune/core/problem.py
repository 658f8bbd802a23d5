"""What is computed: an op and a value for each of its fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core.errors import ProblemError
from autotune.core.values import Value
from autotune.core.words import plain


@dataclass(frozen=True)
class Problem:
    """An op with its shape, dtype and mask. Frozen, hashable, printable; made by `Op.problem(...)`.

    `values` holds (field, value) pairs in the op's order, so equal problems print and hash alike.
    """

    op: str
    values: tuple[tuple[str, Value], ...]

    def __getitem__(self, name: str) -> Value:
        for key, value in self.values:
            if key == name:
                return value
        raise ProblemError(f"op {self.op!r} has no field {name!r}; it has {', '.join(self.fields)}")

    def integer(self, name: str) -> int:
        """The field as an int (lengths and counts)."""
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ProblemError(f"{name}={value!r} is not an integer")
        return value

    @property
    def fields(self) -> dict[str, Value]:
        """All fields by name, as expressions and templates see them."""
        return dict(self.values)

    @property
    def dtype(self) -> str:
        """Element type of the op's main tensors."""
        return str(self["dtype"])

    @property
    def key(self) -> str:
        """Canonical text, the problem's identity in the database: `forward B=4 NH=12 … dtype=fp16`."""
        return " ".join([self.op, *(f"{name}={plain(value)}" for name, value in self.values)])

    def replace(self, **changes: Value) -> "Problem":
        """The same problem with some fields changed; names must exist."""
        for name in changes:
            self[name]
        return Problem(self.op, tuple((k, changes.get(k, v)) for k, v in self.values))

    def to_json(self) -> dict[str, Any]:
        """`{"op": …, field: value, …}`."""
        return {"op": self.op, **self.fields}

    def __str__(self) -> str:
        return self.key


def split_json(data: Mapping[str, Any]) -> tuple[str, dict[str, Value]]:
    """The op's name and the fields out of `Problem.to_json` output."""
    fields = dict(data)
    op = fields.pop("op", None)
    if not isinstance(op, str):
        raise ProblemError(f"a problem needs a text field 'op', got {op!r}")
    return op, fields
