"""The README's commands and Python run as they stand there, in order, on one database."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\$ (.+)$", TEXT, re.MULTILINE)
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SHORTENED = ["--trials", "1"]
"""A search is cut to one trial, so that the example takes seconds."""

Run = Callable[[list[str]], str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "AUTOTUNE_DB": str(folder / "autotune.db"), "AUTOTUNE_DEVICE": "cpu"}

    def call(command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_the_first_commands_are_the_two_that_matter() -> None:
    assert COMMANDS[:2] == ["make search", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^search:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)
    assert "ARGS ?= --op backward --T 1024" in makefile


def test_commands_run_in_order(run: Run) -> None:
    commands = [shlex.split(command) for command in COMMANDS[2:]]
    assert {command[0] for command in commands} == {"autotune"}
    assert [command[1] for command in commands] == [
        "search", "best", "best", "list", "list", "list", "export", "search",
    ]  # fmt: skip
    outputs = []
    for _, name, *arguments in commands:
        shortened = SHORTENED if name == "search" else []
        code = "from autotune.cli.main import main; main()"
        outputs.append(run([sys.executable, "-c", code, name, *arguments, *shortened]))
    assert "ESTIMATES for NVIDIA H200" in outputs[0]
    assert re.search(r"^answer +exact$", outputs[1], re.MULTILINE)
    assert re.search(r'"answer": "(nearest|start)"', outputs[2])
    assert re.search(r'"ms": null', outputs[2])
    assert re.search(r'"sure": "(likely|plausible)', outputs[2])
    assert outputs[6].startswith("wrote backward.cu: ")


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_python_runs(snippet: str, run: Run) -> None:
    if "import torch" in snippet and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: `make test-torch` installs it")
    printed = run([sys.executable, "-c", snippet])
    promised = re.findall(r"^# (\(.*)$", snippet, re.MULTILINE)
    if promised:
        shapes = [line.partition(" [")[0] for line in (*promised, printed)]
        assert shapes[0] == shapes[1]
        numbers = [[float(x) for x in line.partition(" [")[2].rstrip("]\n").split()] for line in (*promised, printed)]
        assert numbers[0] == pytest.approx(numbers[1], abs=2e-4)
    assert printed


def test_what_look_ups_print_is_what_stands_there(tmp_path: Path) -> None:
    """With nothing but what ships, as on the machine with the GPU: winners that are timed anew change it."""
    environment = {name: value for name, value in os.environ.items() if name != "AUTOTUNE_DB"}
    environment |= {"XDG_DATA_HOME": str(tmp_path), "AUTOTUNE_DEVICE": "h200"}
    for command in ("autotune best --op backward --T 1024", "autotune export --op backward --T 1024 -o backward.cu"):
        shown = TEXT.partition(f"$ {command}\n")[2].partition("```")[0].partition("\n$ ")[0].split()
        done = subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert (done.stdout + done.stderr).split() == shown
