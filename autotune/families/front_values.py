"""Values of a front matter's tables, each refused in words that name it."""

import re
from collections.abc import Mapping
from typing import Any

from autotune.core.dtypes import DTYPES
from autotune.core.errors import TemplateError
from autotune.families.expressions import Expression

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def items_of(item: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """A list of at least one."""
    value = item.get(key)
    if not isinstance(value, list) or not value:
        raise TemplateError(f"{where} needs {key!r}, a list of at least one, got {value!r}")
    return value


def identifier(name: Any, what: str) -> str:
    """A name that CUDA can have, too."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise TemplateError(f"{what} name {name!r} is not an identifier")
    return name


def expression(text: Any) -> Expression:
    """Text, or a whole number."""
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise TemplateError(f"{text!r} is not an expression; write it as text")
    return Expression(str(text))


def optional(text: Any) -> Expression | None:
    """The same, or None."""
    return None if text is None else expression(text)


def dtype_of(item: Mapping[str, Any], name: str) -> str:
    """The name of a dtype; `dtype` is the problem's."""
    dtype = item.get("dtype")
    if dtype != "dtype" and not (isinstance(dtype, str) and dtype in DTYPES):
        raise TemplateError(f"{name}: dtype={dtype!r} is not one of dtype, {', '.join(DTYPES)}")
    return str(dtype)


def only(item: Any, allowed: set[str], where: str) -> None:
    """Refuse a table that is none, or has other keys than these."""
    if not isinstance(item, dict):
        raise TemplateError(f"[{where}] must be a table, got {item!r}")
    unknown = sorted(item.keys() - allowed)
    if unknown:
        raise TemplateError(f"[{where}] has an unknown key {unknown[0]!r}; known: {', '.join(sorted(allowed))}")
