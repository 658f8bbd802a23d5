"""Configurations that a family suggests for some problems: `[[suggestions]]` of its front matter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core.errors import TemplateError
from autotune.core.values import Value
from autotune.families.expressions import Expression


@dataclass(frozen=True)
class Suggestion:
    """Values that take the place of the defaults where `when` holds of a problem and a device."""

    when: Expression
    values: tuple[tuple[str, Value], ...]

    def keeping(self, known: Mapping[str, Sequence[Value]]) -> "Suggestion":
        """The same without the values that are not among those of the parameters."""
        return Suggestion(self.when, tuple((name, value) for name, value in self.values if value in known[name]))


def read_suggestions(items: Sequence[Any], known: Mapping[str, Sequence[Value]]) -> tuple[Suggestion, ...]:
    """Suggestions as the front matter writes them: tables of `when` and values of parameters.

    Raises:
        TemplateError: no `when`, no value, an unknown parameter, or a value that it does not take.
    """
    return tuple(_read(item, known) for item in items)


def _read(item: Any, known: Mapping[str, Sequence[Value]]) -> Suggestion:
    if not isinstance(item, dict) or not isinstance(item.get("when"), str):
        raise TemplateError(
            f"[[suggestions]] needs 'when', an expression over the problem and the device, got {item!r}"
        )
    values = tuple((name, value) for name, value in item.items() if name != "when")
    if not values:
        raise TemplateError(f"the suggestion for {item['when']!r} changes nothing; give it values of parameters")
    for name, value in values:
        if name not in known:
            raise TemplateError(f"[[suggestions]] names {name!r}, which is no parameter")
        if value not in known[name]:
            raise TemplateError(f"the suggested {name}={value!r} is not among its values {list(known[name])!r}")
    return Suggestion(Expression(item["when"]), values)
