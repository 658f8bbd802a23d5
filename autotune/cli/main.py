"""The command `autotune`: finds the command's module, runs it, and turns errors into one line and an exit code.

Each command is a module of this package named like it. It has a function `command`, or for a group of
commands a `typer.Typer` called `app`. Only the module of the command that runs is imported, and such a module
imports what is heavy (Optuna, SQLAlchemy, NumPy) inside its functions, so that look-ups and `--help` are quick.
"""

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from autotune.cli.streams import degrade_output
from autotune.core.errors import AutotuneError, SharedCacheWarning
from autotune.core.passwords import hidden
from autotune.core.words import printable
from autotune.tuning.interrupt import end_as_ctrl_c

COMMANDS = (
    "search", "best", "bench", "check", "list", "show", "export", "report", "profile", "ladder", "replay", "db",
    "cache",
)  # fmt: skip
"""The commands, in the order in which they are shown."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it; after SIGTERM and SIGHUP, which end a command in the same way, too."""

READER_GONE = 141
"""Exit code where nobody reads the output any more (`| head`), as shells have it."""

_PYTHONS_WARNING = warnings.showwarning

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

_EPILOG = "Start with: autotune search --op backward --T 1024"


def build_app(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """The application with these commands."""
    app = typer.Typer(
        name="autotune",
        help="Generate, check, time and search CUDA attention kernels.",
        epilog=_EPILOG,
        no_args_is_help=True,
        rich_markup_mode="markdown",  # not "rich", which swallows [default: …] as a tag
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in commands:
        _add(app, name, import_module(f"autotune.cli.{name}"))
    return app


def _add(app: typer.Typer, name: str, module: Any) -> None:
    group = getattr(module, "app", None)
    if isinstance(group, typer.Typer):
        app.add_typer(group, name=name)
    else:
        app.command(name)(module.command)


def _version(wanted: bool) -> None:
    if wanted:
        from autotune.core.version import __version__

        typer.echo(f"autotune {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 0, or with the error's own code: 2 for a wrong request, 130 for Ctrl-C and SIGTERM."""
    end_as_ctrl_c()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are one line on stderr."""
    degrade_output()
    warnings.showwarning = _show_warning
    try:
        return _invoke(list(arguments) or ["--help"])
    except AutotuneError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        message = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
        command = " ".join(["autotune", *_called(arguments)])
        # Empty after a group without a command, whose help has been shown.
        return _fail(f"{message} (see {command} --help)", error.exit_code) if message else error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except SystemExit as error:
        # Typer ends like this when the reader of the output has gone. What it would have read is unknown: not 0, not 1.
        if isinstance(error.__context__, BrokenPipeError):
            return READER_GONE
        raise
    except Exception as error:  # noqa: BLE001 - the last resort, named as a bug
        return _unforeseen(error)


def _called(arguments: Sequence[str]) -> Iterator[str]:
    """The command of a line, after the groups that it is in: not every error of its options knows it."""
    group: Any = typer.main.get_command(build_app(arguments[:1])) if arguments and arguments[0] in COMMANDS else None
    for argument in arguments:
        group = getattr(group, "commands", {}).get(argument)
        if group is None:
            return
        yield argument


def _invoke(arguments: list[str]) -> int:
    known = arguments and arguments[0] in COMMANDS
    command = typer.main.get_command(build_app(arguments[:1] if known else COMMANDS))
    returned = command.main(arguments, prog_name="autotune", standalone_mode=False)
    return returned if isinstance(returned, int) else 0


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, SharedCacheWarning):
        typer.echo(f"note: {printable(str(message))}", err=True)
    else:
        _PYTHONS_WARNING(message, category, *where, **more)


def _fail(message: str, code: int) -> int:
    if os.environ.get("AUTOTUNE_DEBUG"):
        typer.echo(printable(hidden(traceback.format_exc())), err=True)  # causes may quote what was given
    typer.echo(f"error: {printable(hidden(' '.join(message.split())))}", err=True)
    return code


def _unforeseen(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return _fail(f"the output could not be written: {error.strerror}", 1)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return _fail("too few files may be open at a time: raise the limit (ulimit -n 1024)", 1)
    hint = "" if os.environ.get("AUTOTUNE_DEBUG") else "; set AUTOTUNE_DEBUG=1 for the traceback"
    return _fail(f"a bug in autotune: {type(error).__name__}: {error}{hint}", 1)
