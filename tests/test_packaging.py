"""The wheel carries what it needs, and nothing lands beside the package."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from autotune.core.extras import DISTRIBUTION, install

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("autotune_kernels-*.whl")
    return path


def resources() -> list[str]:
    """Every file of `templates/` and `db/` that a user needs, as it should lie in the wheel."""
    found = [p for folder in ("templates", "db") for p in (ROOT / folder).rglob("*") if p.is_file()]
    return [f"autotune/_resources/{p.relative_to(ROOT)}" for p in found if "__pycache__" not in p.parts]


def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"autotune", wheel.name.rsplit("-py3", 1)[0] + ".dist-info"}
    assert set(resources()) <= set(names)
    assert "autotune/_resources/db/migrations/env.py" in names
    assert "autotune/py.typed" in names
    assert "autotune/emulator/include/emulator/emulator.hpp" in names
    assert {f"autotune/report/page/page.{kind}" for kind in ("html.j2", "css", "js")} <= set(names)
    assert any(name.startswith("autotune/emulator/runtime/") and name.endswith(".cpp") for name in names)
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []


def test_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode()
    assert "License-Expression: MIT" in text
    assert "Requires-Python: >=3.11" in text
    extras = {line.removeprefix("Provides-Extra: ") for line in text.splitlines() if line.startswith("Provides-Extra")}
    assert extras == {"gpu", "plot", "postgres", "report", "torch", "transformers", "dev"}
    (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "autotune = autotune.cli.main:main" in archive.read(entry).decode()


def test_one_name_to_install_by() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "autotune").rglob("*.py")]
    named = {name for file in files for name in re.findall(r"pip install (?:-e )?'?(autotune[\w-]*)", file.read_text())}
    assert named <= {DISTRIBUTION}
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for file in files:
        for listed in re.findall(r"pip install -e '\.\[([\w,]+)\]'", file.read_text()):
            assert set(listed.split(",")) <= extras, file
        for extra in re.findall(r"install\('(\w+)'\)", file.read_text()):
            assert extra in extras, file
    assert install("plot") == "pip install 'autotune-kernels[plot]' (in a checkout: pip install -e '.[plot]')"


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "autotune/core/version.py"


def make(*arguments: str, path: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = ["/usr/bin/env", "-i", f"PATH={path}", "make", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with what make and sh need, and neither Python nor a compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("make", "sh", "dirname", "sed", "head", "touch", "env"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    return folder


def fake(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize("target", ["search", "test"])
def test_missing_tools_give_one_line(target: str, tools: Path, tmp_path: Path) -> None:
    venv = f"VENV={tmp_path / 'venv'}"
    assert "g++ is missing: install a C++ compiler" in one_line(make(target, venv, path=str(tools)))
    fake(tools, "g++", "exit 0")
    assert "Python 3.11 or later is missing: install it" in one_line(make(target, venv, path=str(tools)))
    fake(tools, "python3", 'case "$2" in *version_info*) exit 1;; esac')  # an old one
    assert "Python 3.11 or later is missing: install it" in one_line(make(target, venv, path=str(tools)))
    fake(tools, "python3", 'case "$2" in *ensurepip*) exit 1;; esac')  # one without venv
    assert "python3 lacks its module venv: install it" in one_line(make(target, venv, path=str(tools)))
    assert not (tmp_path / "venv").exists()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert script.startswith("#!/usr/bin/env bash\n")
    assert script.rstrip().splitlines()[-1] == "make test"
    assert "make test" in (ROOT / "README.md").read_text()
