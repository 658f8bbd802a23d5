"""What a user's Python function depends on, as a hash: verdicts that an older version gave do not count.

Of functions in files it is the text of their file and of all the user's own files that it imports, wherever in it. Of
functions made on the fly (a notebook's, lambdas, partials, callable objects) it is their code and what that refers to.
Files that code opens are not known. Installed packages are not the user's own.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = __name__.partition(".")[0]


def version_of(function: Callable[..., Any], file: Path | None = None) -> str:
    """Hash (16 hex digits) of a function and all of the user's own code that it may run.

    `file`: of the module by whose name it is known, which may have the function from another one.
    """
    digest = _Digest()
    digest.add(function)
    if file is not None:
        digest.add_file(file)
    return digest.hash.hexdigest()[:16]


class _Digest:
    """Takes in objects, each once, in an order that does not change from process to process."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._files: set[Path] = set()
        self._seen: dict[int, int] = {}  # address to place
        self._held: list[object] = []  # so that no address is used again

    def add_file(self, path: Path) -> None:
        """A file's text, then those of the user's own files that it imports."""
        path = path.resolve()
        if path in self._files:
            return
        self._files.add(path)
        with suppress(OSError):
            text = path.read_bytes()
            self._say("file", text)
            for imported in _imported_files(text, path.parent):
                self.add_file(imported)

    def add(self, thing: Any) -> None:
        """Whatever a function may be, or refer to."""
        if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
            return self._say(type(thing).__name__, repr(thing).encode())
        if id(thing) in self._seen:
            return self._say("again", str(self._seen[id(thing)]).encode())
        self._seen[id(thing)] = len(self._held)
        self._held.append(thing)
        if isinstance(thing, functools.partial):
            self._say("partial", b"")
            for part in (thing.func, thing.args, thing.keywords):
                self.add(part)
        elif isinstance(thing, MethodType):
            self.add(thing.__func__)
            self.add(thing.__self__)
        elif isinstance(thing, FunctionType):
            self._add_function(thing)
        elif isinstance(thing, ModuleType):
            self._add_module(thing)
        elif isinstance(thing, type):
            self._add_class(thing)
        else:
            self._add_value(thing)
        return None

    def _add_function(self, function: FunctionType) -> None:
        file = _own_file(function.__module__)
        if file is not None:
            self._say("function", function.__qualname__.encode())
            self.add_file(file)
        elif not _is_installed(function.__module__):
            self._add_code(function.__code__)
            for name in sorted(_names(function.__code__)):
                if name in function.__globals__:
                    self._say("global", name.encode())
                    self.add(function.__globals__[name])
        else:
            self._say("function", f"{function.__module__}.{function.__qualname__}".encode())
            return
        self.add((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # not filled yet
                self.add(cell.cell_contents)

    def _add_code(self, code: CodeType) -> None:
        """Without file names and line numbers: a notebook's cells get others each time."""
        self._say("code", code.co_code)
        self._say("names", repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._add_code(constant)
            else:
                ordered = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
                self._say("constant", repr(ordered).encode())

    def _add_module(self, module: ModuleType) -> None:
        file = _own_file(module.__name__)
        self._say("module", module.__name__.encode())
        if file is not None:
            self.add_file(file)

    def _add_class(self, kind: type) -> None:
        self._say("class", f"{kind.__module__}.{kind.__qualname__}".encode())
        file = _own_file(kind.__module__)
        if file is not None:
            self.add_file(file)
        elif not _is_installed(kind.__module__):
            for base in kind.__bases__:
                self.add(base)
            for name, member in sorted(vars(kind).items()):
                if isinstance(member, FunctionType | staticmethod | classmethod | property):
                    self._say("member", name.encode())
                    for function in _functions(member):
                        self.add(function)

    def _add_value(self, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.dtype != object:
            self._say("array", f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, dict):
            self._say("dict", str(len(value)).encode())
            for key, held in value.items():
                self.add(key)
                self.add(held)
        elif isinstance(value, list | tuple):
            self._say("list", str(len(value)).encode())
            for held in value:
                self.add(held)
        elif isinstance(value, BuiltinFunctionType | np.ufunc):
            self._say("builtin", f"{getattr(value, '__module__', '')}.{value.__name__}".encode())
        else:  # an object: its class, and what it holds
            self.add(type(value))
            held = getattr(value, "__dict__", None)
            if held:
                self.add(dict(held))
            elif not held and not hasattr(value, "__dict__"):
                with suppress(Exception):
                    self._say("pickled", pickle.dumps(value))

    def _say(self, kind: str, data: bytes) -> None:
        self.hash.update(f"{kind} {len(data)}:".encode() + data)


def _names(code: CodeType) -> set[str]:
    """Global names that code and the functions inside it may use."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _functions(member: Any) -> Iterator[Any]:
    if isinstance(member, property):
        yield from filter(None, (member.fget, member.fset, member.fdel))
    else:
        yield inspect.unwrap(member.__func__) if isinstance(member, staticmethod | classmethod) else member


def _imported_files(text: bytes, folder: Path) -> Iterator[Path]:
    """The user's own files that a module's text imports, in its order; inside functions, too."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name, folder)
        elif isinstance(node, ast.ImportFrom):
            base = folder
            for _ in range(max(0, node.level - 1)):
                base = base.parent
            if node.module:
                yield from _files(node.module, base)
            for alias in node.names:  # a submodule, if there is one
                yield from _files(f"{node.module}.{alias.name}" if node.module else alias.name, base)


def _files(name: str, folder: Path) -> Iterator[Path]:
    """The user's own files behind a module's name: its packages', then its own."""
    if name.partition(".")[0] in {_OURS, *sys.stdlib_module_names}:
        return
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        beside = folder.joinpath(*parts[:length])
        near = [path for path in (beside.with_suffix(".py"), beside / "__init__.py") if path.is_file()]
        found = near[0] if near else _own_file(".".join(parts[:length]))
        if found is not None:
            yield found


def _own_file(module: str) -> Path | None:
    """The file of a module, if it is the user's own."""
    if not module or module == "__main__" or module.partition(".")[0] in {_OURS, *sys.stdlib_module_names}:
        return None
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None)
    if origin is None and "." not in module:
        with suppress(Exception):
            spec = importlib.util.find_spec(module)
            origin = None if spec is None else spec.origin
    path = Path(origin) if isinstance(origin, str) and origin.endswith(".py") else None
    return None if path is None or not path.is_file() or _installed(path) else path


def _is_installed(module: str | None) -> bool:
    """Whether a module without a file of the user's is somebody else's; a notebook's is the user's."""
    name = (module or "__main__").partition(".")[0]
    if name == "__main__":
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return name in {_OURS, *sys.stdlib_module_names} or (isinstance(file, str) and _installed(Path(file)))


def _installed(path: Path) -> bool:
    path = path.resolve()
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(
        path.is_relative_to(folder) for folder in _INSTALLED
    )
