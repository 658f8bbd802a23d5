"""What docs/pytorch.md shows runs as it stands there, in order; so does the example, in little."""

import contextlib
import importlib.util
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")
pytest.importorskip("transformers", reason="Transformers is not installed: `make test-torch` installs it")

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "pytorch.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "none.db"))
    monkeypatch.setattr("autotune.gpus.present.present_gpu", lambda index=0: None)


def test_the_page() -> None:
    said, names = list[list[str]](), dict[str, Any]()
    for snippet in SNIPPETS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(snippet, names)
        said.append(printed.getvalue().splitlines())
    kernels, pytorch, transformers = said
    assert kernels[0].startswith("<autotune kernel forward B=1 NH=2")
    assert kernels[1:] == ["(1, 2, 64, 64)", "(1, 2, 40, 64)"]
    assert pytorch == ["torch.Size([1, 2, 64, 64]) True", "0.0"]
    assert transformers == ["torch.Size([1, 8])"]


def test_the_example(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("train_gpt", ROOT / "examples" / "train_gpt.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    sizes = ["--layers", "1", "--width", "64", "--heads", "2", "--T", "32", "--batch", "2", "--steps", "4", "--fp32"]
    runs = example.main(["--device", "cpu", *sizes, "--out", str(tmp_path)])
    assert [*runs] == ["PyTorch", "autotune", "PyTorch, another kernel", "PyTorch, again"]
    for run in runs.values():
        assert run["losses"] == pytest.approx(runs["PyTorch"]["losses"], abs=1e-4)
    assert runs["PyTorch"]["losses"][0] > runs["PyTorch"]["losses"][-1] > 0
    assert json.loads((tmp_path / "train_gpt.json").read_text())["runs"] == runs
