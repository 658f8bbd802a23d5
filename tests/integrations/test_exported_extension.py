"""Extensions that `autotune export --format torch` writes: their bindings against PyTorch's own headers."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")

from torch.utils.cpp_extension import include_paths  # noqa: E402

from autotune.answers.export_projects import torch_files  # noqa: E402
from autotune.compilers.toolchain import cuda_include_dirs, find_gxx  # noqa: E402
from autotune.families.template import find_template  # noqa: E402
from tests.compile.test_export_projects import answer  # noqa: E402

FAMILIES = {"forward": "flash_wgmma", "backward": "flash_mma", "matmul": "mma", "softmax": "warp_per_row"}


def test_bindings_compile(tmp_path: Path) -> None:
    """Of several ops at once: PyTorch's headers take long. Each keeps its names to itself."""
    lines = []
    for op, family in FAMILIES.items():
        folder = tmp_path / op
        folder.mkdir()
        for name, text in torch_files(answer(find_template(op, family)), f"mine_{op}").items():
            (folder / name).write_text(text)
        lines += [f"#define TORCH_EXTENSION_NAME mine_{op}", f"namespace {op} {{", f'#include "{op}/binding.cpp"', "}"]
        lines += ["#undef TORCH_EXTENSION_NAME"]
    first = [f'#include "{op}/mine_{op}.h"' for op in FAMILIES]
    system = {line: None for op in FAMILIES for line in (tmp_path / op / "binding.cpp").read_text().splitlines()
              if line.startswith("#include <")}  # fmt: skip
    (tmp_path / "all.cpp").write_text("\n".join([*system, *first, *lines]) + "\n")
    folders = [*include_paths(), sysconfig.get_paths()["include"], *map(str, cuda_include_dirs())]
    options = ["-std=c++20", "-fsyntax-only", "-Wall", "-Werror", *(f"-isystem{folder}" for folder in folders)]
    command = [str(find_gxx().path), *options, "all.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
