"""The order of the packages: each imports only those before it, imports inside functions included."""

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import autotune

ORDER = (
    "core", "gpus", "ops", "families", "store", "compilers", "emulator", "devices", "trace", "estimate", "tuning",
    "answers", "checker", "integrations", "bench", "ladder", "report", "cli",
)  # fmt: skip
HERE = Path(autotune.__file__).parent


def imports(file: Path) -> Iterator[str]:
    """Names of this package's modules that a module imports anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide which package is meant"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_imports_point_down() -> None:
    upward = [
        f"{file.relative_to(HERE)} imports {name}"
        for file in sorted(HERE.glob("*/**/*.py"))
        for name in imports(file)
        if name.partition(".")[0] == "autotune"
        and (name.count(".") < 1 or name.split(".")[1] not in ORDER[: ORDER.index(file.relative_to(HERE).parts[0]) + 1])
    ]
    assert not upward, "\n".join(upward)


def test_no_cycles() -> None:
    modules = {".".join(file.relative_to(HERE.parent).with_suffix("").parts): file for file in HERE.rglob("*.py")}
    known = {name.removesuffix(".__init__"): file for name, file in modules.items() if name != "autotune.__init__"}
    graph = {
        name: {next((n for n in (found, found.rpartition(".")[0]) if n in known), name) for found in imports(file)}
        - {name}
        for name, file in known.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_modules_of_different_meaning_have_different_names() -> None:
    """A command and what is printed for it are called what they are about; nothing else shares a name."""
    stems = Counter(file.stem for file in HERE.glob("*/**/*.py") if file.parent.name not in {"cli", "report"})
    assert {stem for stem, count in stems.items() if count > 1} == {"__init__"}
