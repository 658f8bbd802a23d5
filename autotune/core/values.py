"""Small shared types: what a field, a parameter or an expression can be."""

from collections.abc import Mapping, Sequence

Value = bool | int | float | str
"""One field of a problem or one value of a parameter."""

Config = Mapping[str, Value]
"""One value for each parameter of a template, in the template's order."""


def format_config(config: Config) -> str:
    """`BLOCK_M=64 UNROLL=4`: the one way a configuration is printed and keyed."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def is_listed(value: Value, values: Sequence[Value]) -> bool:
    """Whether a value is listed as it is: true is not 1, though they are equal, and would be rendered as another."""
    return any(type(value) is type(one) and value == one for one in values)
