"""Options that say which problem, shared by every command that takes one.

A command lists the `…Option` aliases it needs as parameters and hands the texts to `field_values` (one
problem) or `field_products` (a sweep: every combination of the listed values).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated

import typer

from autotune.core.errors import UsageError
from autotune.core.values import Value

_PANEL = "Problem"

BOption = Annotated[list[str] | None, typer.Option("--B", help="Batch size.", rich_help_panel=_PANEL)]
NHOption = Annotated[list[str] | None, typer.Option("--NH", help="Query heads.", rich_help_panel=_PANEL)]
NHKVOption = Annotated[
    list[str] | None, typer.Option("--NH-kv", help="Key/value heads; divides NH.", rich_help_panel=_PANEL)
]
TOption = Annotated[list[str] | None, typer.Option("--T", help="Query length.", rich_help_panel=_PANEL)]
TKVOption = Annotated[list[str] | None, typer.Option("--T-kv", help="Key/value length.", rich_help_panel=_PANEL)]
HSOption = Annotated[list[str] | None, typer.Option("--HS", help="Head size.", rich_help_panel=_PANEL)]
DTypeOption = Annotated[
    list[str] | None, typer.Option("--dtype", help="Element type: fp16, bf16 or fp32.", rich_help_panel=_PANEL)
]
CausalOption = Annotated[
    bool | None,
    typer.Option("--causal/--no-causal", help="Mask keys after the query, aligned to the end.", rich_help_panel=_PANEL),
]
LayoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--layout",
        help="Where things are in memory: bthd, bhtd or packed; of matmul, A and B as nn, nt, tn or tt.",
        rich_help_panel=_PANEL,
    ),
]
MOption = Annotated[list[str] | None, typer.Option("--M", help="matmul: rows of A and C.", rich_help_panel=_PANEL)]
NOption = Annotated[list[str] | None, typer.Option("--N", help="matmul: columns of B and C.", rich_help_panel=_PANEL)]
KOption = Annotated[
    list[str] | None, typer.Option("--K", help="matmul: columns of A, rows of B.", rich_help_panel=_PANEL)
]
MaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mask", help="matmul: triangle that matters: none, c_lower, a_lower or a_upper.", rich_help_panel=_PANEL
    ),
]
AlphaOption = Annotated[
    list[str] | None, typer.Option("--alpha", help="matmul: factor of the product.", rich_help_panel=_PANEL)
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", help="matmul: matrices of A that share one of B.", rich_help_panel=_PANEL)
]
InterleavedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--interleaved",
        help="matmul: operands that lie as (B, rows, NH, columns): none, ab, bc, ….",
        rich_help_panel=_PANEL,
    ),
]
ArithmeticOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arithmetic", help="matmul: full, or tf32: fp32 factors may be rounded to tf32.", rich_help_panel=_PANEL
    ),
]
ScaleOption = Annotated[
    list[str] | None,
    typer.Option("--scale", help="softmax, softmax_backward: factor of the scores.", rich_help_panel=_PANEL),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A field of any op, by name.", rich_help_panel=_PANEL),
]
FullPrecisionOption = Annotated[
    bool,
    typer.Option(
        "--full-precision", help="Leave out families whose products are not those of the dtype (3xTF32 for fp32)."
    ),
]


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


def field_choices(
    options: Mapping[str, Sequence[str] | bool | None], settings: Sequence[str] | None = None
) -> dict[str, tuple[Value, ...]]:
    """The values given for each field; fields not given are left out, so that the op's defaults hold.

    Args:
        options: field name to the texts given (each may be a list: `512,1024`), a bool, or None.
        settings: `NAME=VALUE` texts of `--set`; VALUE may be a list too.

    Raises:
        UsageError: an empty list, a `--set` without `=`, or a field given both ways.
    """
    choices = {name: _values(name, given) for name, given in options.items() if given not in (None, [], ())}
    for name, text in map(split_setting, settings or ()):
        if name in options and name in choices:
            raise UsageError(f"{name} is given by --set and by its own option; keep one of them")
        choices[name] = (*choices.get(name, ()), *_values(name, [text]))
    return choices


def field_products(choices: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    """Every combination of the values, in the order given: one problem each."""
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def field_values(
    options: Mapping[str, Sequence[str] | bool | None], settings: Sequence[str] | None = None
) -> dict[str, Value]:
    """The fields of a single problem.

    Raises:
        UsageError: some field has more than one value.
    """
    choices = field_choices(options, settings)
    for name, values in choices.items():
        if len(values) > 1:
            raise UsageError(f"{name} has {len(values)} values here, but this command takes one problem")
    return {name: values[0] for name, values in choices.items()}


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
