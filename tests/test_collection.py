"""The README's test command runs every test file there is."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import LONG

ROOT = Path(__file__).parents[1]
SKIPPED = re.compile(r"^SKIPPED \[\d+\] ([^:]+\.py):\d+: ")
"""A file that says why it cannot run here: it was looked at."""


def command() -> list[str]:
    """What `make test` runs pytest with, this interpreter in the place of the environment's."""
    planned = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in planned.splitlines() if " -m pytest" in line)
    _, *arguments = shlex.split(line)
    return [sys.executable, *arguments]


def files_of_tests(root: Path) -> Iterator[str]:
    """Every `test_*.py` below `root`, but for hidden folders and environments."""
    for top in sorted(root.iterdir()):
        if top.is_dir() and not top.name.startswith(".") and not (top / "pyvenv.cfg").exists():
            yield from (str(path.relative_to(root)) for path in sorted(top.rglob("test_*.py")))


def left_out(root: Path) -> list[str]:
    """Test files that the command does not collect, or of which it leaves tests out."""
    done = subprocess.run([*command(), "--collect-only", "-q"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    lines = done.stdout.splitlines()
    collected = {line.partition("::")[0] for line in lines if "::" in line}
    collected |= {found[1] for line in lines if (found := SKIPPED.match(line))}
    deselected = [line for line in lines if " deselected" in line]
    return [*(path for path in files_of_tests(root) if path not in collected), *deselected]


def test_every_file_is_collected() -> None:
    names = {Path(path).stem for path in files_of_tests(ROOT)}
    assert len(names) > 100
    assert set(LONG) <= names
    assert left_out(ROOT) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The project's configuration of pytest, with one small test file in a folder of its own."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    add(tmp_path, "tests/subject/test_one.py")
    return tmp_path


def add(root: Path, name: str, text: str = "def test_it() -> None:\n    assert True\n") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def configure(root: Path, option: str) -> None:
    """Add an option to what pytest is always run with."""
    path = root / "pyproject.toml"
    text = path.read_text()
    assert 'addopts = "' in text
    path.write_text(text.replace('addopts = "', f'addopts = "{option} '))


def test_a_tree_without_fault(tree: Path) -> None:
    add(tree, "tests/subject/deeper/test_two.py", "import pytest\npytest.importorskip('no_such_module')\n")
    assert left_out(tree) == []


def test_folders_that_are_not_looked_into(tree: Path) -> None:
    names = ["elsewhere/test_two.py", "tests/build/test_two.py", "tests/dist/test_two.py"]
    for name in names:
        add(tree, name)
    assert left_out(tree) == names


def test_a_file_that_is_ignored(tree: Path) -> None:
    add(tree, "tests/subject/test_two.py")
    configure(tree, "--ignore=tests/subject/test_two.py")
    assert left_out(tree) == ["tests/subject/test_two.py"]


@pytest.mark.parametrize("option", ["--deselect=tests/subject/test_two.py", "-k=not\\ two", "-m=not\\ gpu"])
def test_a_file_of_which_tests_are_left_out(option: str, tree: Path) -> None:
    add(tree, "tests/subject/test_two.py", "import pytest\n@pytest.mark.gpu\ndef test_it() -> None:\n    assert True\n")
    configure(tree, option.replace("\\", "\\\\"))
    said = left_out(tree)
    assert said[0] == "tests/subject/test_two.py"
    assert "1 deselected" in said[1]


def test_a_test_file_without_a_test(tree: Path) -> None:
    add(tree, "tests/subject/test_two.py", "def its_name_is_wrong() -> None: ...\n")
    assert left_out(tree) == ["tests/subject/test_two.py"]
