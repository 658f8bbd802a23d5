"""Python functions of a user's: by `module:function`, or as they are; and in a form that another process can load."""

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.core.errors import UsageError
from autotune.families.own_code import version_of

Function = Callable[..., Any]


@dataclass(frozen=True)
class Pickled:
    """A function that no other process can import (a notebook's, a lambda, a partial, an object), by value.

    `version` tells apart what it does; `paths` are where modules that it imports are found.
    """

    name: str
    data: bytes
    version: str
    paths: tuple[str, ...]

    def load(self) -> Function:
        """The function.

        Raises:
            UsageError: what it refers to cannot be imported here.
        """
        sys.path.extend(path for path in self.paths if path not in sys.path)
        try:
            function: Function = pickle.loads(self.data)
        except Exception as error:  # whatever the user's modules raise
            raise UsageError(f"the function {self.name} cannot be loaded in another process: {error}") from error
        return function


Named = str | Pickled
"""A function as processes tell each other: `module:function`, or by value."""


def require_function_or_name(function: Named | Function | None, what: str) -> None:
    """Raise UsageError for what is neither a function nor names one; None is no function, which may be."""
    if not (function is None or isinstance(function, str | Pickled) or callable(function)):
        raise UsageError(f"{what}={function!r} is neither a function nor 'module:function'")


def named(function: Named | Function | None, what: str = "reference") -> Named | None:
    """A function in a form that another process can load.

    Raises:
        UsageError: it is not a function, or holds something that cannot be sent to another process.
    """
    require_function_or_name(function, what)
    if function is None or isinstance(function, str | Pickled):
        return function
    import cloudpickle

    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        data = cloudpickle.dumps(function)
    except Exception as error:  # whatever its objects raise
        raise UsageError(f"the {what} {name} cannot be sent to another process: {error}") from error
    return Pickled(name, data, version_of(function), tuple(path for path in sys.path if path))


def load_function(function: Named, folder: Path, option: str = "--reference") -> tuple[Function, str]:
    """The function, and its version. By name, a file in `folder` (beside the template) goes before an installed module.

    Raises:
        UsageError: it cannot be imported, or is not callable.
    """
    if isinstance(function, Pickled):
        return function.load(), function.version
    module_name, _, function_name = function.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"{option} {function!r} must be module:function")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = _module(module_name, folder)
        loaded = getattr(module, function_name)
    except (Exception, SystemExit) as error:  # importing runs the user's code
        raise UsageError(f"{option} {function!r} cannot be loaded: {error}") from error
    if not callable(loaded):
        raise UsageError(f"{option} {function!r} is not a function")
    file = getattr(module, "__file__", None)
    return loaded, version_of(loaded, Path(file) if isinstance(file, str) else None)


def _module(name: str, folder: Path) -> ModuleType:
    """The module; read anew where it is a file beside the template: one of that name may be known from elsewhere."""
    path = folder / f"{name}.py"
    if not path.is_file():
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None  # a .py file has one
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
