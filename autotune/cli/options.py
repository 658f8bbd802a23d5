"""Options that say which problem: one for each field of the ops, made from the fields themselves.

A command that takes a problem has a parameter `asked: AskedFields` and is decorated with `problem_options()`, which
puts `--B`, `--dtype`, … and `--set` in its place.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, TypeVar

import typer

from autotune.core.errors import UsageError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.ops.op import Field
from autotune.ops.registry import BUILTIN, get_op

PROBLEM_PANEL = "Problem"

_Result = TypeVar("_Result")

OpOption = Annotated[
    str | None,
    typer.Option(
        "--op",
        help=f"{', '.join(BUILTIN)}, or the op of your own --template [default: that op, else forward].",
        rich_help_panel=PROBLEM_PANEL,
    ),
]
TemplateOption = Annotated[
    str | None, typer.Option("--template", help="A family of your own (.cu.j2), or the only shipped one to look at.")
]
ReferenceOption = Annotated[
    str | None, typer.Option("--reference", help="Its op's reference, module:function, if it declares an op.")
]
FullPrecisionOption = Annotated[
    bool,
    typer.Option(
        "--full-precision", help="Leave out families whose products are not those of the dtype (3xTF32 for fp32)."
    ),
]

ObjectiveOption = Annotated[
    str, typer.Option("--objective", help="Best by what: time | energy | edp, where energies are known.")
]
MaxErrorOption = Annotated[
    float | None, typer.Option("--max-error", help="The part of the error bound that it may use (0.5: half of it).")
]


@dataclass(frozen=True)
class AskedFields:
    """What was said of the problem's fields.

    Attributes:
        options: field name to the texts given (each may be a list: `512,1024`), a bool, or None.
        settings: `NAME=VALUE` texts of `--set`; VALUE may be a list too.
    """

    options: Mapping[str, Sequence[str] | bool | None]
    settings: Sequence[str] = ()

    def choices(self) -> dict[str, tuple[Value, ...]]:
        """The values of each field; fields not given are left out, so that the op's defaults hold.

        Raises:
            UsageError: an empty list, a `--set` without `=`, or a field given both ways.
        """
        choices = {name: _values(name, given) for name, given in self.options.items() if given not in (None, [], ())}
        for name, text in map(split_setting, self.settings):
            if name in self.options and name in choices:
                raise UsageError(f"{name} is given by --set and by its own option; keep one of them")
            choices[name] = (*choices.get(name, ()), *_values(name, [text]))
        return choices

    def values(self) -> dict[str, Value]:
        """The fields of a single problem.

        Raises:
            UsageError: some field has more than one value.
        """
        choices = self.choices()
        for name, values in choices.items():
            if len(values) > 1:
                raise UsageError(f"{name} has {len(values)} values here, but this command takes one problem")
        return {name: values[0] for name, values in choices.items()}


def problem_options(*ops: str) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Put options for the fields of these ops, by default of all built-in ones, in the place of a command's `asked`."""
    fields: dict[str, dict[str, Field]] = {}
    for op in ops or BUILTIN:
        for field in get_op(op).fields:
            if field.has_option:
                fields.setdefault(field.name, {})[op] = field
    options = [_option(name, by_op) for name, by_op in fields.items()]
    setting = typer.Option(
        "--set", metavar="NAME=VALUE", help="A field of any op, by name.", rich_help_panel=PROBLEM_PANEL
    )
    options.append(_parameter("settings", list[str] | None, setting))

    def decorate(command: Callable[..., _Result]) -> Callable[..., _Result]:
        @functools.wraps(command)
        def with_options(**given: Any) -> _Result:
            settings = given.pop("settings") or ()
            asked = AskedFields({name: given.pop(name) for name in fields}, settings)
            return command(asked=asked, **given)

        signature = inspect.signature(command)
        parameters = list(signature.parameters.values())
        place = list(signature.parameters).index("asked")
        parameters[place : place + 1] = options
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_options

    return decorate


def _option(name: str, by_op: Mapping[str, Field]) -> inspect.Parameter:
    flag = next(iter(by_op.values())).option
    if all(field.kind == "bool" for field in by_op.values()):
        kind: Any = bool
        flag += f"/--no-{flag[2:]}"
    else:
        kind = list[str]
    return _parameter(name, kind | None, typer.Option(flag, help=_meaning(by_op), rich_help_panel=PROBLEM_PANEL))


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _meaning(by_op: Mapping[str, Field]) -> str:
    """What a field is; where it is not the same for all ops, the first op's, then others by the ops' names."""
    ops: dict[str, list[str]] = {}
    for op, field in by_op.items():
        text = f"{field.help}: {', '.join(field.choices)}" if field.choices else field.help
        ops.setdefault(text, []).append(op)
    texts = [text if BUILTIN[0] in names else f"{', '.join(names)}: {text}" for text, names in ops.items()]
    said = "; ".join(texts)
    return f"{said[:1].upper()}{said[1:]}." if next(iter(ops.values()))[0] == BUILTIN[0] else f"{said}."


def parse_value(text: str) -> Value:
    """`8` an int, `0.5` a float, `true`/`false` a bool, anything else text."""
    lowered = text.strip().lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    for convert in (int, float):
        try:
            return convert(lowered)
        except ValueError:
            continue
    return text.strip()


def field_products(choices: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    """Every combination of the values, in the order given: one problem each."""
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _values(name: str, given: Sequence[str] | bool | None) -> tuple[Value, ...]:
    if isinstance(given, bool):
        return (given,)
    texts = [piece.strip() for text in given or () for piece in text.split(",")]
    if not texts or not all(texts):
        raise UsageError(f"{name} needs a value, or values separated by commas, got {','.join(given or ())!r}")
    return tuple(dict.fromkeys(parse_value(text) for text in texts))


def split_setting(text: str, option: str = "--set") -> tuple[str, str]:
    """`NAME=VALUE` in its two parts.

    Raises:
        UsageError: there is no `=`, or no name.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{option} takes NAME=VALUE, got {text!r}")
    return name.strip(), value


class Wanted:
    """Which problems and devices a list is about."""

    def __init__(self, op: str | None, fields: Mapping[str, Sequence[Any]], device: str | None) -> None:
        self.op, self.device = op, device
        self._fields = {name: {_text(value) for value in values} for name, values in fields.items()}

    def has(self, problem: Problem) -> bool:
        if self.op not in {None, problem.op}:
            return False
        values = problem.fields
        return all(name in values and _text(values[name]) in given for name, given in self._fields.items())

    def on(self, device: str) -> bool:
        return self.device in {None, device}


def _text(value: Any) -> str:
    """As problems print it, so that `--causal`, `true` and 1 are one."""
    return str(int(value)) if isinstance(value, bool) else str(value)
