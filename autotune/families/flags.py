"""Compiler options that a template asks for, beyond those of every build: `flags = ["-use_fast_math", "-DN=4"]`.

They may depend on the configuration, as the body does: `"-maxrregcount={{ REGISTERS }}"`; one that is rendered empty is
left out. They enter the key of every build and the compile lines of exports.
"""

import re
from collections.abc import Sequence
from typing import Any

from autotune.core.errors import TemplateError

_ALONE = (
    "use_fast_math", "lineinfo", "generate-line-info", "restrict", "extra-device-vectorization",
    "expt-relaxed-constexpr", "extended-lambda",
)  # fmt: skip
_WITH_VALUE = (
    "fmad",
    "ftz",
    "prec-div",
    "prec-sqrt",
    "maxrregcount",
    "Xptxas",
    "ptxas-options",
    "diag-suppress",
    "std",
)

_SHAPE = re.compile(
    rf"--?(?:(?:{'|'.join(_ALONE)})|(?:{'|'.join(_WITH_VALUE)})=[\w.,=+:-]+)|-D\w+(?:=[\w.,+:-]*)?|-U\w+", re.ASCII
)
_MEANT_FOR_HOSTS = re.compile(r"-[DU]|--?std=")
_FAST_MATH = ("ftz", "prec-div", "prec-sqrt", "fmad")


def read_flags(given: Sequence[Any]) -> tuple[str, ...]:
    """The texts of a front matter's `flags`.

    Raises:
        TemplateError: something else than a text, or an option that is not known and has nothing to render.
    """
    for flag in given:
        if not isinstance(flag, str):
            raise TemplateError(f"flags lists {flag!r}, which is no text")
        if "{" not in flag:
            checked([flag])
    return tuple(given)


def checked(flags: Sequence[str]) -> tuple[str, ...]:
    """Rendered options, without empty ones.

    Raises:
        TemplateError: one that a template may not give.
    """
    kept = tuple(flag.strip() for flag in flags if flag.strip())
    for flag in kept:
        if not _SHAPE.fullmatch(flag):
            known = ", ".join([f"-{name}" for name in _ALONE] + [f"-{name}=VALUE" for name in _WITH_VALUE])
            raise TemplateError(
                f"flags: {flag!r} is not among the options that a template may give: -DNAME, -DNAME=VALUE, -UNAME, "
                f"{known}; one text an option, with = before its value. Headers lie beside the template, the "
                "architecture is the device's"
            )
    return kept


def merged(usual: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """The options of every build and a template's own, which go before those of the same name."""
    names = {_name(flag) for flag in flags}
    names |= set(_FAST_MATH) if "use_fast_math" in names else set()
    return (*(flag for flag in usual if _name(flag) not in names), *flags)


def for_hosts(flags: Sequence[str]) -> tuple[str, ...]:
    """Those that a C++ compiler for the emulator knows too: macros and the language."""
    return tuple(re.sub(r"^--std", "-std", flag) for flag in flags if _MEANT_FOR_HOSTS.match(flag))


def _name(flag: str) -> str:
    """`ftz` of `-ftz=false`; the whole of what may be given several times."""
    name = flag.lstrip("-").partition("=")[0]
    return name if name in {*_ALONE, *_WITH_VALUE} - {"Xptxas", "ptxas-options", "diag-suppress"} else flag
