"""Writes `docs/cli.md` from the commands themselves: `python -m autotune.cli.docs docs/cli.md`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from autotune.cli.main import build_app

_HEAD = """# Command line

Made by `make docs` from the commands' own descriptions; do not edit.

Exit codes: 0 done; 1 an error; 2 a wrong request; 3 there is no winner, or no configuration
is possible; 4 the device is missing; 130 Ctrl-C, SIGTERM or SIGHUP, also with results; 141 nobody reads the output
any more (`| head`).
Errors are one line on stderr; `AUTOTUNE_DEBUG=1` adds the traceback.
"""


def document() -> str:
    """The whole page, in Markdown."""
    root = typer.main.get_command(build_app())
    return "\n".join([_HEAD, *_commands(root, "autotune")])


def _commands(group: Any, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        full = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from _commands(command, full)
        else:
            yield _command(command, full)


def _command(command: Any, name: str) -> str:
    context = typer.Context(command, info_name=name)
    parameters = [p for p in command.get_params(context) if p.name != "help"]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    options = [p for p in parameters if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([name, *(_argument(argument) for argument in arguments), "[OPTIONS]"])
    lines = [f"## {name}", "", _text(command.help), "", f"    {usage}", ""]
    if parameters:
        rows = [*map(_argument_row, arguments), *map(_row, options)]
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _argument(argument: Any) -> str:
    name = argument.make_metavar() if callable(getattr(argument, "make_metavar", None)) else argument.name.upper()
    return str(name)


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(f"`{name}`" for name in option.secondary_opts)
    return f"| {names} | {_cell(option.help)}{_default(option)} |"


def _argument_row(argument: Any) -> str:
    return f"| `{_argument(argument)}` | {_cell(argument.help)} |"


def _cell(help_text: str | None) -> str:
    return _text(help_text).replace("|", "\\|")


def _default(option: Any) -> str:
    value = option.default
    if value in {None, False} or callable(value) or option.secondary_opts or value in ((), []):
        return ""
    return f" Default: `{value}`."


def _text(help_text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (help_text or "").split("\n\n"))


def main() -> None:
    """Write the page to the file named on the command line."""
    Path(sys.argv[1]).write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
