"""Exported files built and run where there is a GPU."""

import re
import subprocess
from pathlib import Path

from autotune.compilers.toolchain import find_nvcc


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build an exported file by the command that it names, and run it on the GPU."""
    (folder / "exported.cu").write_text(text)
    compile_line = re.search(r"^// compile: +nvcc (.*)$", text, re.MULTILINE)
    assert compile_line is not None
    build = [str(find_nvcc().path), *compile_line[1].split()]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "exported"], capture_output=True, text=True, check=False, timeout=120)
