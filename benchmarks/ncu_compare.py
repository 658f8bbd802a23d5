"""The checker's counters against those of Nsight Compute.

On a machine with compilers:      python -m benchmarks.ncu_compare prepare dist/ncu
On the GPU, with ncu on the PATH: python -m benchmarks.ncu_compare run dist/ncu

`prepare` traces every case in full (no sampling) on a small problem and leaves the cubin, the inputs and our counters;
`run` needs Python alone (no NumPy), and prints one row a kernel and counter. At the end kernels are counted whose
counters all agree within 5 %, and others that move the same bytes in other pieces: nvcc splits and merges accesses.
"""

import argparse
import csv
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ncu_counters import NAMES, agrees, all_metrics, counters, nearest, ours, same_bytes

_SMALL = {"B": 1, "NH": 2, "T": 512, "dtype": "fp16"}
_PRODUCT = {"B": 1, "NH": 2, "M": 512, "N": 512, "K": 64, "dtype": "fp16"}

Case = tuple[str, str, dict[str, Any], dict[str, Any]]
"""Op, family, the problem's fields, and where the configuration differs from the family's default."""

CASES: tuple[Case, ...] = (
    ("forward", "flash_simt", _SMALL, {}),
    ("forward", "flash_simt", _SMALL, {"SMEM_PAD": 0}),
    ("forward", "flash_simt", {**_SMALL, "T": 509, "dtype": "fp32", "causal": False}, {}),
    ("forward", "unfused", _SMALL, {}),
    ("forward", "unfused", _SMALL, {"SMEM_PAD": 0, "VEC": 1}),
    ("forward", "flash_mma", _SMALL, {}),
    ("backward", "flash_simt", _SMALL, {}),
    ("backward", "unfused", {**_SMALL, "dtype": "bf16"}, {}),
    ("matmul", "simt", {**_PRODUCT, "dtype": "fp32"}, {}),
    ("matmul", "mma", _PRODUCT, {}),
    ("softmax", "warp_per_row", {**_SMALL, "dtype": "fp32"}, {}),
    ("softmax", "block_per_row", _SMALL, {}),
)


def cases(device: str) -> Iterator[Case]:
    """CASES, then the default of every other family that searches take, in the first dtype that it supports."""
    from autotune.families.template import builtin_templates
    from autotune.gpus.known import gpu
    from autotune.ops.registry import BUILTIN, get_op

    yield from CASES
    known = {case[:2] for case in CASES}
    for op in BUILTIN:
        for template in builtin_templates(op):
            if (op, template.name) in known or template.front.historical:
                continue
            for dtype in ("fp16", "fp32"):
                fields: dict[str, Any] = {**(_PRODUCT if op == "matmul" else _SMALL), "dtype": dtype}
                if template.why_unsupported(get_op(op).problem(**fields), gpu(device)) is None:
                    yield op, template.name, fields, {}
                    break


def main() -> int:
    """Prepare or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="h200", help="prepare: the GPU to compile for")
    parser.add_argument("--ncu", default="ncu", help="run: the program, or its path")
    arguments = parser.parse_args()
    if arguments.step == "prepare":
        for number, case in enumerate(cases(arguments.device)):
            prepare(arguments.folder / f"{number:02}-{case[0]}-{case[1]}", *case, device=arguments.device)
        return 0
    return 0 if compare(arguments.folder, arguments.ncu) else 1


def prepare(
    folder: Path, op_name: str, family: str, fields: Mapping[str, Any], params: Mapping[str, Any], device: str
) -> None:
    """Leave `kernel.cubin`, `case.pickle` and `ours.json` in the folder."""
    from autotune.compilers.cache import BuildCache
    from autotune.compilers.nvcc import build_cubin
    from autotune.families.op_ref import OpRef
    from autotune.families.space import Space
    from autotune.families.template import find_template
    from autotune.gpus.known import gpu
    from autotune.ops.expected import storage_images
    from autotune.ops.registry import get_op
    from autotune.trace.task import TraceTask, run_task

    spec, op, template = gpu(device), get_op(op_name), find_template(op_name, family)
    problem = op.problem(**fields)
    space = Space(template, problem, spec)
    config = {**space.default(), **params}
    if (reason := space.why_not(config)) is not None:
        raise SystemExit(f"{folder.name}: {reason}")
    task = TraceTask(OpRef(op_name), template.path, problem, tuple(config.items()), spec, blocks=None)
    traced = run_task(task)
    if traced.trace.findings or not traced.trace.complete:
        raise SystemExit(f"{folder.name}: {traced.trace.findings or traced.trace.failure}")
    folder.mkdir(parents=True, exist_ok=True)
    cubin = build_cubin(traced.source, spec.arch, BuildCache())
    (folder / "kernel.cubin").write_bytes(cubin.path.read_bytes())
    images = {n: a.tobytes() for n, a in storage_images(op.tensors(problem), op.inputs(problem, task.seed)).items()}
    (folder / "case.pickle").write_bytes(pickle.dumps((traced.source.plan, images)))
    (folder / "ours.json").write_text(
        json.dumps([ours(kernel) for kernel in traced.trace.kernels], indent=1), encoding="utf-8"
    )
    print(f"{folder.name}: {len(traced.trace.kernels)} kernels", flush=True)


def compare(folder: Path, ncu: str) -> bool:
    """Print the table; whether at least six kernels agree in every counter."""
    known = _known_metrics(ncu)
    print(f"not known to this ncu: {', '.join(sorted(all_metrics() - known)) or 'none'}")
    found = sorted(path.parent for path in folder.glob("*/ours.json"))
    mine = [
        (case.name, kernel) for case in found for kernel in json.loads((case / "ours.json").read_text(encoding="utf-8"))
    ]
    theirs = _profile(ncu, found, known)
    if len(theirs) != len(mine):
        raise SystemExit(f"ncu saw {len(theirs)} kernels, we {len(mine)}")
    print(f"{'case / kernel':56} {'counter':24} {'ours':>12} {'ncu':>12} {'off by':>8}")
    verdicts = [_print_kernel(name, one, other) for (name, one), other in zip(mine, theirs, strict=True)]
    for verdict in dict.fromkeys(verdicts):
        print(f"{verdicts.count(verdict)} of {len(verdicts)} kernels: {verdict}")
    return verdicts.count(_AGREES) >= 6


_AGREES = "every counter within 5 %"
_PIECES = "the same bytes in other pieces"
_DIFFERS = "something differs"


def _print_kernel(case: str, mine: Mapping[str, Any], measured: Mapping[str, float]) -> str:
    wrong = []
    for name in NAMES:
        if name not in measured or (not mine[name] and not measured[name]):
            continue
        label, value = nearest(name, mine, measured[name])
        right = agrees(name, value, measured)
        wrong += [name] if right is False else []
        off = abs(value - measured[name]) / max(measured[name], 1.0)
        mark = {None: "", True: "", False: " <"}[right]
        place = f"{case} / {mine['kernel']}"
        print(f"{place:56} {label:24} {value:12.0f} {measured[name]:12.0f} {off:8.1%}{mark}")
    if not wrong:
        return _AGREES
    return _PIECES if same_bytes(mine, measured) else _DIFFERS


def _known_metrics(ncu: str) -> set[str]:
    done = subprocess.run([_program(ncu), "--query-metrics"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def _profile(ncu: str, folders: Sequence[Path], known: set[str]) -> list[dict[str, float]]:
    """Our counters as ncu counts them, kernel by kernel in the order of the launches."""
    wanted = [f"{metric}.sum" for metric in sorted(all_metrics() & known)]
    command = [
        _program(ncu), "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
        "--metrics", ",".join(wanted), sys.executable, "-m", "benchmarks.ncu_driver", *map(str, folders),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"ncu failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [_counters(row, known) for row in _rows(done.stdout.splitlines())]


def _rows(lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """Rows of ncu's CSV; the line after its header gives units."""
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise SystemExit("ncu printed no table:\n" + "\n".join(lines[-20:]))
    rows = list(csv.DictReader(lines[start:]))
    yield from (row for row in rows if row["ID"].strip().isdigit())


def _counters(row: Mapping[str, str], known: set[str]) -> dict[str, float]:
    values = {m: row.get(f"{m}.sum", "").replace(",", "") for m in all_metrics() & known}
    return counters({metric: float(text) for metric, text in values.items() if _is_number(text)})


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:  # "n/a": known by name, but not on this GPU
        return False
    return True


def _program(ncu: str) -> str:
    path = shutil.which(ncu)
    if path is None:
        raise SystemExit(f"{ncu} is not here: install Nsight Compute, or name it with --ncu")
    return path


if __name__ == "__main__":
    sys.exit(main())
