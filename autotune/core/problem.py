"""What is computed: an op and a value for each of its fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.errors import ProblemError
from autotune.core.values import Value
from autotune.core.words import plain


@dataclass(frozen=True)
class Problem:
    """An op with its shape, dtype and mask. Frozen, hashable, printable; made by `Op.problem(...)`.

    `values` holds (field, value) pairs in the op's order, so equal problems print and hash alike. A field of `implied`
    is among them only where its value is not that of the field named with it: records made before there was such a
    field are of the same problems as today's.
    """

    op: str
    values: tuple[tuple[str, Value], ...]
    implied: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, op: str, fields: Mapping[str, Value], implied: tuple[tuple[str, str], ...] = ()) -> "Problem":
        """The problem with these fields, of which some of the `implied` ones may be missing."""
        sources = dict(implied)
        said = {name: value for name, value in fields.items() if value != fields.get(sources.get(name, ""))}
        return cls(op, tuple(said.items()), implied)

    def __getitem__(self, name: str) -> Value:
        for key, value in self.values:
            if key == name:
                return value
        for key, source in self.implied:
            if key == name:
                return self[source]
        raise ProblemError(f"op {self.op!r} has no field {name!r}; it has {', '.join(self.fields)}")

    def says(self, name: str) -> bool:
        """Whether a field has a value of its own, which is not implied."""
        return any(key == name for key, _ in self.values)

    def unsaid(self) -> tuple["Problem", ...]:
        """Where it says what might be implied: the problems that do not, with the one value and with the other."""
        said = [(name, source) for name, source in self.implied if self.says(name)]
        return tuple(
            self.replace(**change) for name, source in said for change in ({name: self[source]}, {source: self[name]})
        )

    def integer(self, name: str) -> int:
        """The field as an int (lengths and counts)."""
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ProblemError(f"{name}={value!r} is not an integer")
        return value

    @property
    def fields(self) -> dict[str, Value]:
        """All fields by name, as expressions and templates see them."""
        if not self.implied:
            return dict(self.values)
        said = dict(self.values)
        found: dict[str, Value] = {}
        for name, value in self.values:
            found[name] = value
            found |= {key: said.get(key, value) for key, source in self.implied if source == name}
        return found

    @property
    def dtype(self) -> str:
        """Element type of the op's main tensors."""
        return str(self["dtype"])

    @property
    def key(self) -> str:
        """Canonical text, the problem's identity in the database: `forward B=4 NH=12 … dtype=fp16`."""
        return " ".join([self.op, *(f"{name}={plain(value)}" for name, value in self.values)])

    def replace(self, **changes: Value) -> "Problem":
        """The same problem with some fields changed; names must exist. What is implied follows its source."""
        for name in changes:
            self[name]
        if not self.implied:
            return Problem(self.op, tuple((k, changes.get(k, v)) for k, v in self.values))
        said = {**dict(self.values), **changes}
        sources = dict(self.implied)
        changed = {name: said.get(name, said[sources.get(name, name)]) for name in self.fields}
        return Problem.of(self.op, changed, self.implied)

    def to_json(self) -> dict[str, Any]:
        """`{"op": …, field: value, …}`, without what is implied."""
        return {"op": self.op, **dict(self.values)}

    def __str__(self) -> str:
        return self.key


def split_json(data: Mapping[str, Any]) -> tuple[str, dict[str, Value]]:
    """The op's name and the fields out of `Problem.to_json` output."""
    fields = dict(data)
    op = fields.pop("op", None)
    if not isinstance(op, str):
        raise ProblemError(f"a problem needs a text field 'op', got {op!r}")
    return op, fields
