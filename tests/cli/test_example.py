"""The example in `examples/`: a kernel of one's own, tuned, looked up and exported with its README's commands."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "softmax"


def commands() -> list[list[str]]:
    """The README's commands, without the program's name."""
    found = re.findall(r"^    autotune (.*)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    return [shlex.split(line) for line in found]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    environment = {**os.environ, "AUTOTUNE_DB": str(tmp_path / "softmax.db"), "AUTOTUNE_DEVICE": "cpu"}

    def call(*arguments: str) -> str:
        command = [sys.executable, "-c", "from autotune.cli.main import main; main()", *arguments]
        done = subprocess.run(
            command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, check=False, timeout=280
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_the_readme(run: Run, tmp_path: Path) -> None:
    search, export = commands()
    assert (search[0], export[0]) == ("search", "export")
    result = json.loads(run(*search, "--device", "cpu", "--trials", "6", "--json"))
    assert result["kind"] == "estimated"
    assert result["problem"] == {"op": "row_softmax", "rows": 512, "cols": 1024, "dtype": "fp32"}
    assert result["outcomes"]["ok"] >= 5
    assert result["best"] is not None

    path = tmp_path / "softmax.cu"
    export[export.index("-o") + 1] = str(path)
    out = run(*export)
    assert "exact" not in out
    assert "there is no C++ reference for row_softmax, so the file has the launcher and no main()" in out
    text = path.read_text()
    assert 'extern "C" int autotune_row_softmax(' in text
    assert "estimated by a model, not measured" in text
    assert "int main()" not in text
    assert not list(EXAMPLE.glob("*.cu"))


def test_python_of_the_documents_runs(tmp_path: Path) -> None:
    """As in a notebook: its functions are no file's."""
    root = EXAMPLE.parents[1]
    [snippet] = re.findall(
        r"^```python\n(.*?)^```", (root / "docs" / "kernels.md").read_text(), re.MULTILINE | re.DOTALL
    )
    environment = {**os.environ, "AUTOTUNE_DB": str(tmp_path / "notebook.db"), "AUTOTUNE_DEVICE": "cpu"}
    done = subprocess.run(
        [sys.executable, "-"], input=snippet, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{'THREADS': 64, 'VEC': 1, 'KEEP': ")


def test_what_the_documents_quote_is_in_the_example() -> None:
    text = (EXAMPLE.parents[1] / "docs" / "kernels.md").read_text()
    template = (EXAMPLE.parent / "scatter" / "scatter.cu.j2").read_text()
    [quoted] = re.findall(r'^```toml\n(op        = "scatter_add".*?)^```', text, re.MULTILINE | re.DOTALL)
    for line in filter(None, quoted.splitlines()):
        assert line.partition("#")[0].strip() in template


def test_every_configuration_is_right(run: Run) -> None:
    """A small problem, all of its space: rows that no number of threads and no vector divides."""
    template = ["--template", "softmax.cu.j2", "--reference", "softmax_reference:row_softmax"]
    problem = ["--set", "rows=3", "--set", "cols=199", "--set", "dtype=bf16"]
    result = json.loads(run("search", *template, *problem, "--device", "cpu", "--sampler", "grid", "--json"))
    assert set(result["outcomes"]) == {"ok"}, result["messages"]
    assert result["outcomes"]["ok"] == result["space_size"] == 5 * 1 * 2
