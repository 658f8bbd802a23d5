"""A kernel family with some of its parameters pinned: one step of a climb, where steps differ by one idea."""

from collections.abc import Mapping
from dataclasses import replace

from autotune.core.errors import TemplateError
from autotune.core.values import Value
from autotune.families.frontmatter import Parameter
from autotune.families.template import Template

Pins = Mapping[str, Value | tuple[Value, ...]]
"""Parameters that are held at a value, or at some of their values."""


def narrowed(template: Template, pins: Pins) -> Template:
    """The same family (name and hash are kept) with fewer values for the parameters pinned.

    A default that is not among the values left gives way to the first of them, a start's value to the default.

    Raises:
        TemplateError: no such parameter, or a value that it does not take.
    """
    parameters = {parameter.name: parameter for parameter in template.parameters}
    for name, value in pins.items():
        if name not in parameters:
            raise TemplateError(f"{template.name} has no parameter {name!r}; it has {', '.join(parameters)}")
        parameters[name] = _narrow(template.name, parameters[name], value)
    defaults = tuple(
        (name, default if default in parameters[name].values else parameters[name].values[0])
        for name, default in template.front.defaults
    )
    known = {name: parameter.values for name, parameter in parameters.items()}
    front = replace(template.front, parameters=tuple(parameters.values()), defaults=defaults)
    return replace(template, front=front, starts=tuple(start.keeping(known) for start in template.starts))


def _narrow(family: str, parameter: Parameter, pinned: Value | tuple[Value, ...]) -> Parameter:
    wanted = pinned if isinstance(pinned, tuple) else (pinned,)
    for value in wanted:
        if value not in parameter.values:
            raise TemplateError(f"{parameter.name} of {family} takes {list(parameter.values)}, not {value!r}")
    return replace(parameter, values=wanted)
