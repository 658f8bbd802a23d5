"""Nsight Compute on the best configuration known: its command, its run, and the program that it looks at.

That program is this module: `python -m autotune.answers.profiling TASK` launches one configuration once, on a GPU, as
`autotune.kernel` does. The task is JSON on the command line, so that the command can be repeated by hand as printed.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from autotune.answers.best import Best
from autotune.answers.kernel import Kernel
from autotune.answers.ncu_table import MARK, Profile, parse_profile
from autotune.compilers.cache import BuildCache
from autotune.compilers.recalled import built_cubin
from autotune.core.errors import AutotuneError, DeviceMissing, LaunchError, UsageError
from autotune.core.files import written
from autotune.core.values import Config, Value
from autotune.devices.driver import Driver, cuda_driver
from autotune.families.op_ref import OpRef
from autotune.families.space import Space
from autotune.families.template import builtin_templates, find_template, load_template
from autotune.families.unreferenced import resolve
from autotune.gpus.identity import parse_device
from autotune.gpus.present import present_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import BUILTIN, get_op

Level = Literal["basic", "detailed", "full"]
LEVELS: tuple[Level, ...] = ("basic", "detailed", "full")
"""ncu's own sets of sections."""

LIMIT_S = 1800.0

_FORBIDDEN = "ERR_NVGPUCTRPERM"


@dataclass(frozen=True)
class ProfileTask:
    """One configuration to launch. `file`: a user's own template; `reference`: as `autotune.best` has it."""

    op: str
    family: str
    fields: Mapping[str, Value]
    config: Config
    gpu: int = 0
    file: str | None = None
    reference: str | None = None

    def text(self) -> str:
        """As the command line has it; `read` is its inverse."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> "ProfileTask":
        return cls(**json.loads(text))


def task_of(found: Best, gpu: int, reference: str | None = None) -> ProfileTask:
    """The task for what a look-up answered."""
    known = {template.path for template in builtin_templates(found.problem.op)}
    file = None if found.template.path in known else str(found.template.path.resolve())
    return ProfileTask(
        found.problem.op, found.candidate.template, found.problem.fields, dict(found.config), gpu, file, reference
    )


def ncu_command(task: ProfileTask, ncu: str, level: Level) -> list[str]:
    """What profiles a task: the raw page as comma-separated values, one row a launch, clocks as they are."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--set", level, "--clock-control", "none",
        "--target-processes", "application-only", sys.executable, "-m", "autotune.answers.profiling", task.text(),
    ]  # fmt: skip


def find_ncu(named: str | None) -> str:
    """The program: as named, on the PATH, or with the CUDA toolkit.

    Raises:
        AutotuneError: it is not installed.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    for place in (named,) if named else ("ncu", str(Path(home) / "bin" / "ncu")):
        found = shutil.which(place)
        if found is not None:
            return found
    said = f"--ncu {named} is no program" if named else "Nsight Compute (ncu) is not on the PATH, nor under CUDA_HOME"
    raise AutotuneError(
        f"{said}: install it (it comes with the CUDA toolkit, or alone from NVIDIA), or name it with --ncu"
    )


def require_gpu(index: int) -> DeviceSpec:
    """The GPU of this index.

    Raises:
        DeviceMissing: there is none.
    """
    spec = present_gpu(index)
    if spec is None:
        raise DeviceMissing(
            f"profiling needs an NVIDIA GPU, and there is {'none' if not index else f'no GPU {index}'} here; "
            "--print-command shows the command to run where there is one"
        )
    return spec


def profile(found: Best, task: ProfileTask, command: Sequence[str], output: Path) -> Profile:
    """Build the kernel, run ncu on it, and write its table with a line that says what it is of.

    Raises:
        DeviceMissing: there is no GPU.
        CompileError, BuildError: the kernel does not build.
        LaunchError: ncu failed, or saw no kernel; the message has what it said.
        AutotuneError: the file cannot be written.
    """
    spec = require_gpu(task.gpu)
    if spec.name != found.device.name:
        raise DeviceMissing(f"the GPU here is {spec.title}, and what was looked up is for {found.device.title}")
    built_cubin(found.source, found.device.arch, BuildCache())  # here, so that ncu waits for no compiler
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", check=False, timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"ncu did not end within {LIMIT_S:.0f} s: try --level basic") from error
    except OSError as error:
        raise AutotuneError(f"cannot run {command[0]}: {error.strerror}") from error
    _check(done)
    try:
        read = parse_profile(done.stdout, "the output of ncu")
    except UsageError as error:
        raise LaunchError(f"ncu saw no kernel: {_tail(done)}") from error
    about = {
        "candidate": found.candidate.key, "problem": found.problem.key, "device": found.device.name,
        "source_hash": found.source.hash,
    }  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    start = next(at for at, line in enumerate(lines) if line.startswith('"ID"'))
    _write(output, "\n".join([MARK + json.dumps(about), *lines[start:], ""]))
    return replace(read, about=about)


def _check(done: "subprocess.CompletedProcess[str]") -> None:
    if _FORBIDDEN in done.stdout or _FORBIDDEN in done.stderr:
        raise LaunchError(
            "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): run the command as root "
            "(--print-command shows it), or have the administrator load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    if done.returncode != 0:
        raise LaunchError(f"ncu failed with exit code {done.returncode}: {_tail(done)}")


def _tail(done: "subprocess.CompletedProcess[str]") -> str:
    lines = [line.strip() for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if line.strip()]
    told = [line for line in lines if "==ERROR==" in line or "error" in line.lower()] or lines
    return " ".join(told[-4:])[:600] or "it printed nothing"


def _write(output: Path, text: str) -> None:
    with written(output) as file:
        file.write(text)


def kernel_of(task: ProfileTask, driver: Driver | None = None) -> Kernel:
    """A task's configuration as a callable; `driver`: in place of this machine's.

    Raises:
        DeviceMissing: there is no GPU.
        UsageError: the configuration is not one of the family's.
    """
    spec = require_gpu(task.gpu)
    path = None if task.file is None else Path(task.file)
    template = find_template(task.op, task.family) if path is None else load_template(path)
    unknown = path is not None and task.op not in BUILTIN and not template.front.reference
    problem = resolve(OpRef(task.op, path, task.reference or ("" if unknown else None))).problem(**task.fields)
    candidate = Space(template, problem, spec).candidate(task.config)
    found = Best(
        answer="default", kind="none", found_ms=None, problem=problem, device=spec, candidate=candidate,
        template=template,
    )  # fmt: skip
    return Kernel(found, lambda _: found, driver or cuda_driver(), task.gpu)


def launch(kernel: Kernel) -> dict[str, Any]:
    """Launch it once, on random inputs, and wait for it. Nobody compares the results."""
    inputs = get_op(kernel.best.problem.op).inputs(kernel.best.problem, 0)
    return kernel(**{name: inputs[name] for name in kernel.inputs})


def gpu_index(device: str | None) -> int:
    """Which GPU a device's name means: 1 of `cuda:1`, else the first."""
    return parse_device(device or "cuda").index


if __name__ == "__main__":
    try:
        launch(kernel_of(ProfileTask.read(sys.argv[1])))
    except AutotuneError as problem:
        sys.exit(f"error: {problem}")
