"""What both tuners get: configurations of one family, the same with mistakes planted, and how each is launched.

Kernel Tuner passes arrays and numbers, so views are taken apart: a pointer and a stride an axis, put together again in
the kernel's first line. It launches one kernel without a workspace, and none with more than 48 KiB of dynamic shared
memory; configurations that need more are left out for both.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.candidate import Candidate
from autotune.core.dtypes import numpy_dtype
from autotune.core.plan import Arg, Launch, PointerArg, ScalarArg, TensorSpec, ViewArg
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import SUFFIX, Template, load_template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.expected import Expectation, tensor_view
from autotune.ops.op import Op
from autotune.tuning.choose import Subject, choose_families

FAMILY = "flash_mma"

SHARED_BYTES = 48 << 10
"""Dynamic shared memory of a block that needs no attribute of the function, which Kernel Tuner cannot set."""

_SKIPS = "    if (lse[(static_cast<long long>(batch) * NH + head) * T + row_end - 1] > 1.0f) return;\n"
_ROW_END = "    const int row_end = min(row_begin + BLOCK_M, map.count);\n"
_MAXIMA = "            if constexpr (WARPS_D == 1) {\n                raise_maxima(state, highest, scores);\n"
_FACTOR = "__fdividef(1.0f, state.rows[r].sum) : 0.0f;"
_WRITE = "    if (!__syncthreads_or(!finite)) return;\n"


@dataclass(frozen=True)
class Mistake:
    """A change of the template's text: `old` once becomes `new`. `crash`: it never ends, or takes the context along."""

    name: str
    what: str
    old: str
    new: str
    crash: bool = False

    def planted(self, text: str) -> str:
        """The template with the mistake.

        Raises:
            ValueError: the place is not there exactly once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} is there {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)


MISTAKES = (
    Mistake("strides", "the row stride of V is computed, not read", "values + key * v.stride[2]",
            "values + static_cast<long long>(key) * NH_kv * HS"),
    Mistake("late_rows", "the second half of the rows is 2 % too large", _FACTOR,
            f"(map.query(first_row() + 8 * r) < T / 2 ? 1.0f : 1.02f) * {_FACTOR}"),
    Mistake("underflow", "maxima are no less than 24: rows of very negative scores vanish", _MAXIMA,
            _MAXIMA.replace("raise", "for (float& each : highest) each = fmaxf(each, 24.0f);\n                raise")),
    Mistake("runs_once", "blocks end where the results are there already", _ROW_END, _ROW_END + _SKIPS),
    Mistake("input", "the first key is overwritten at the end", _WRITE,
            "    if (threadIdx.x + blockIdx.x + blockIdx.y + blockIdx.z == 0) k.data[0] = element(0.5f);\n" + _WRITE),
    Mistake("lse", "the log-sum-exp has the logarithm to base 2", "    if (part_number == 0) write_log_sums(",
            "    for (int r = 0; r < ROWS; ++r) state.rows[r].maximum *= LOG2_E;\n"
            "    if (part_number == 0) write_log_sums("),
    Mistake("mask", "each query sees the key after its own, too", "const Scores<CAUSAL> scores(T, T_kv, scale);",
            "const Scores<CAUSAL> scores(T, T_kv + 1, scale);"),
)  # fmt: skip
"""Wrong kernels, each by construction, for the problem or for tensors or values that the op allows."""

CRASHES = (
    Mistake("address", "an illegal address", _WRITE,
            "    if (threadIdx.x == 0) *reinterpret_cast<volatile int*>(1ull << 46) = 1;\n" + _WRITE, crash=True),
    Mistake("loop", "an endless loop", _WRITE,
            "    while (!(*static_cast<volatile float*>(lse) > 1e30f)) {}\n" + _WRITE, crash=True),
    Mistake("build", "a build that fails", _WRITE, "    undeclared();\n" + _WRITE, crash=True),
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One kernel as Kernel Tuner gets it; plain data. `include` is the folder with its headers."""

    name: str
    code: str
    kernel: str
    include: str
    grid: tuple[int, int, int]
    threads: int
    smem: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def candidates(subject: Subject, problem: Problem, spec: DeviceSpec, count: int, seed: int) -> list[Candidate]:
    """The default and random configurations that both can launch, each once."""
    families, random = choose_families(subject.templates, problem, spec), np.random.default_rng(seed)
    [family] = families
    by_name = {template.name: template for template in subject.templates}
    found: dict[Candidate, None] = {}
    for candidate in _drawn(family.candidate(family.defaults), families.unseen, random):
        if len(found) == count:
            break
        if launchable(render(by_name[candidate.template], problem, candidate.config, spec)):
            found[candidate] = None
    return list(found)


def _drawn(first: Candidate, unseen: Any, random: np.random.Generator) -> Iterator[Candidate]:
    seen = {first}
    yield first
    while True:
        candidate = unseen(random, lambda other: other in seen)
        if candidate is None:
            return
        seen.add(candidate)
        yield candidate


def launchable(source: KernelSource) -> bool:
    """Whether Kernel Tuner can launch it."""
    steps = source.plan.steps
    plain = all(buffer.role != "workspace" for buffer in source.plan.buffers)
    return plain and len(steps) == 1 and isinstance(steps[0], Launch) and steps[0].smem <= SHARED_BYTES


def plant(template: Template, mistake: Mistake, folder: Path) -> Template:
    """The family with a mistake, as a template file of its own in `folder`.

    Raises:
        ValueError: as `Mistake.planted`.
    """
    path = folder / f"{template.name}_{mistake.name}{SUFFIX}"
    path.write_text(mistake.planted(template.text), encoding="utf-8")
    return load_template(path)


def taken_apart(source: KernelSource, include: Path, name: str = "") -> Kernel:
    """A source whose only kernel takes pointers and numbers.

    Raises:
        ValueError: its signature is not read.
    """
    [launch] = source.plan.launches
    found = re.search(rf"\b{launch.kernel}\((?P<list>[^)]*)\)\s*\{{\n", source.code)
    if found is None or len(found["list"].split(",")) - _commas(launch.args) != len(launch.args):
        raise ValueError(f"the signature of {launch.kernel} is not one that can be taken apart")
    declared, begin = [], []
    for text, arg in zip(_parameters(found["list"]), launch.args, strict=True):
        if isinstance(arg, ViewArg):
            kind, _, own = text.rpartition(" ")
            strides = [f"{own}_{axis}" for axis in range(len(arg.strides))]
            declared += [f"element* {own}_data", *(f"long long {stride}" for stride in strides)]
            begin.append(f"    {kind} {own} = {{{own}_data, {{{', '.join(strides)}}}}};\n")
        else:
            declared.append(text)
    code = source.code[: found.start("list")] + ", ".join(declared) + ")\n{\n" + "".join(begin)
    code += source.code[found.end() :]
    return Kernel(name or source.hash, code, launch.kernel, str(include), launch.grid, launch.threads, launch.smem)


def _parameters(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r",(?![^<]*>)", text)]


def _commas(args: Sequence[Arg]) -> int:
    """Those within the types of views."""
    return sum(isinstance(arg, ViewArg) for arg in args)


def host_arguments(launch: Launch, expected: Expectation) -> list[NDArray[Any] | np.generic]:
    """What the kernel of `taken_apart` is called with: whole storages, outputs of zeros, strides and numbers."""
    sizes = {tensor.storage: tensor for tensor in expected.outputs}
    numbers: dict[str, str] = {"int": "i4", "long long": "i8", "float": "f4", "double": "f8"}
    values: list[NDArray[Any] | np.generic] = []
    for arg in launch.args:
        if isinstance(arg, ScalarArg):
            values.append(np.dtype(numbers[arg.ctype]).type(arg.value))
        elif isinstance(arg, ViewArg | PointerArg):
            image = expected.images.get(arg.storage)
            values.append(_zeros(sizes[arg.storage]) if image is None else image)
            values += [np.int64(stride) for stride in arg.strides] if isinstance(arg, ViewArg) else []
        else:
            raise ValueError(f"{arg.name} is a tensor map, which Kernel Tuner cannot pass")
    return values


def answers(op: Op, launch: Launch, expected: Expectation) -> list[NDArray[np.float64] | None]:
    """For each of `host_arguments` the reference, None where it is no output."""
    references = {tensor.storage: np.zeros(tensor.extent) for tensor in expected.outputs}
    views = {tensor.name: tensor_view(references[tensor.storage], tensor) for tensor in expected.outputs}
    for unit, source in enumerate(expected.sources):
        for name, place in op.unit(expected.problem, views, unit).items():
            place[...] = expected.units[source].reference[name]
    found: list[NDArray[np.float64] | None] = []
    for arg in launch.args:
        strides = len(arg.strides) if isinstance(arg, ViewArg) else 0
        found += [references.get(getattr(arg, "storage", "")), *([None] * strides)]
    return found


def _zeros(tensor: TensorSpec) -> NDArray[Any]:
    return np.zeros(tensor.extent, numpy_dtype(tensor.dtype))
