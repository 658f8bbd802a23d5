"""nvcc with warnings as errors."""

import subprocess
from pathlib import Path

from autotune.compilers.cache import write_source
from autotune.compilers.nvcc import FLAGS
from autotune.compilers.toolchain import find_nvcc
from autotune.families.source import KernelSource


def compile_strictly(source: KernelSource, arch: str, folder: Path) -> str:
    """What nvcc says when warnings are errors; empty but for ptxas' report when all is well."""
    path = write_source(source, folder)
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall", "-cubin", f"-arch={arch}", "-o", "kernel.cubin"]
    command = [str(find_nvcc(arch).path), *FLAGS, *strict, path.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
