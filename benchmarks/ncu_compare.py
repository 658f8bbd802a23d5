"""The checker's counters against those of Nsight Compute.

On a machine with compilers:      python -m benchmarks.ncu_compare prepare dist/ncu
On the GPU, with ncu on the PATH: python -m benchmarks.ncu_compare run dist/ncu

`prepare` traces every case in full (no sampling) on a small problem and leaves the cubin, the inputs and our counters;
`run` needs Python alone (no NumPy), and prints one row a kernel and counter. Kernels whose counters all agree within
5 % are counted at the end.
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

_SMALL = {"B": 1, "NH": 2, "T": 512, "dtype": "fp16"}
_PRODUCT = {"B": 1, "NH": 2, "M": 512, "N": 512, "K": 64}

CASES: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("forward", "flash_simt", _SMALL, {}),
    ("forward", "flash_simt", _SMALL, {"SMEM_PAD": 0}),
    ("forward", "flash_simt", {**_SMALL, "T": 509, "dtype": "fp32", "causal": False}, {}),
    ("forward", "unfused", _SMALL, {}),
    ("forward", "unfused", _SMALL, {"SMEM_PAD": 0, "VEC": 1}),
    ("forward", "flash_mma", _SMALL, {}),
    ("backward", "flash_simt", _SMALL, {}),
    ("backward", "unfused", {**_SMALL, "dtype": "bf16"}, {}),
    ("matmul", "simt", {**_PRODUCT, "dtype": "fp32"}, {}),
    ("matmul", "mma", {**_PRODUCT, "dtype": "fp16"}, {}),
    ("softmax", "warp_per_row", {**_SMALL, "dtype": "fp32"}, {}),
    ("softmax", "block_per_row", _SMALL, {}),
)
"""Op, family, the problem's fields, and where the configuration differs from the family's default."""

METRICS: Mapping[str, tuple[str, ...]] = {
    "load requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld",),
    "load sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld",),
    "copied sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts",),
    "store requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st",),
    "store sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st",),
    "atomic sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_red", "l1tex__t_sectors_pipe_lsu_mem_global_op_atom"),
    "shared wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared",),
    "shared load wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",),
    "shared store wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st",),
    "bank conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared",),
    "load conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld",),
    "store conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st",),
}
"""Ours: the metrics (`.sum` of each, added up) that count the same. Those that this ncu does not know are left out."""

ARITHMETIC: Mapping[str, int] = {
    "smsp__sass_thread_inst_executed_op_ffma_pred_on": 2,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on": 1,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on": 1,
}
"""What `fp32 operations` are made of, and how many each is: shown, not judged (ours have minima and maxima too)."""


def main() -> int:
    """Prepare or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="h200", help="prepare: the GPU to compile for")
    parser.add_argument("--ncu", default="ncu", help="run: the program, or its path")
    arguments = parser.parse_args()
    if arguments.step == "prepare":
        for number, case in enumerate(CASES):
            prepare(arguments.folder / f"{number:02}-{case[0]}-{case[1]}", *case, device=arguments.device)
        return 0
    return 0 if compare(arguments.folder, arguments.ncu) else 1


def prepare(
    folder: Path, op_name: str, family: str, fields: Mapping[str, Any], params: Mapping[str, Any], device: str
) -> None:
    """Leave `kernel.cubin`, `case.pickle` and `ours.json` in the folder."""
    from autotune.build.cache import BuildCache
    from autotune.build.nvcc import build_cubin
    from autotune.check.task import TraceTask, run_task
    from autotune.devices.gpus import gpu
    from autotune.expected import storage_images
    from autotune.ops.locate import OpRef
    from autotune.ops.registry import get_op
    from autotune.space import Space
    from autotune.template import find_template

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
    (folder / "ours.json").write_text(json.dumps([_ours(kernel) for kernel in traced.trace.kernels], indent=1))
    print(f"{folder.name}: {len(traced.trace.kernels)} kernels")


def _ours(kernel: Any) -> dict[str, Any]:
    asynchronous = {row.place for row in kernel.of("async copy")}
    loads = [row for row in kernel.of("global load") if row.place not in asynchronous]
    copies = [row for row in kernel.of("global load") if row.place in asynchronous]
    shared_loads = list(kernel.of("shared load", "matrix load"))
    shared_stores = list(kernel.of("shared store"))
    stores, atomics = list(kernel.of("global store")), list(kernel.of("global atomic"))
    return {
        "kernel": kernel.kernel,
        "load requests": sum(row.requests for row in loads),
        "load sectors": sum(row.sectors for row in loads),
        "copied sectors": sum(row.sectors for row in copies),
        "store requests": sum(row.requests for row in stores),
        "store sectors": sum(row.sectors for row in stores),
        "atomic sectors": sum(row.sectors for row in atomics),
        "fp32 operations": kernel.arithmetic.fp32,
        "shared wavefronts": sum(row.wavefronts for row in kernel.lines),
        "shared load wavefronts": sum(row.wavefronts for row in shared_loads),
        "shared store wavefronts": sum(row.wavefronts for row in shared_stores),
        "bank conflicts": sum(row.conflicts for row in kernel.lines),
        "load conflicts": sum(row.conflicts for row in shared_loads),
        "store conflicts": sum(row.conflicts for row in shared_stores),
    }


def compare(folder: Path, ncu: str) -> bool:
    """Print the table; whether at least six kernels agree in every counter."""
    known = _known_metrics(ncu)
    missing = sorted(_all_metrics() - known)
    print(f"not known to this ncu: {', '.join(missing) or 'none'}")
    print(f"{'case / kernel':52} {'counter':24} {'ours':>12} {'ncu':>12} {'off by':>8}")
    agreeing = total = 0
    for case in sorted(path for path in folder.iterdir() if (path / "ours.json").is_file()):
        ours = json.loads((case / "ours.json").read_text())
        theirs = _profile(ncu, case, known)
        if len(theirs) != len(ours):
            print(f"{case.name}: ncu saw {len(theirs)} kernels, we {len(ours)}")
            continue
        for mine, measured in zip(ours, theirs, strict=True):
            total += 1
            agreeing += _print_kernel(case.name, mine, measured)
    print(f"{agreeing} of {total} kernels agree within 5 % in every counter")
    return agreeing >= 6


def _print_kernel(case: str, ours: Mapping[str, Any], measured: Mapping[str, float]) -> bool:
    agrees = True
    for name in (*METRICS, "fp32 operations"):
        if name not in measured or (not ours[name] and not measured[name]):
            continue
        off = abs(ours[name] - measured[name]) / max(measured[name], 1.0)
        agrees = agrees and (off <= 0.05 or name not in METRICS)
        print(f"{case + ' / ' + ours['kernel']:52} {name:24} {ours[name]:12} {measured[name]:12.0f} {off:8.1%}")
    return agrees


def _known_metrics(ncu: str) -> set[str]:
    done = subprocess.run([_program(ncu), "--query-metrics"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def _profile(ncu: str, case: Path, known: set[str]) -> list[dict[str, float]]:
    """Our counters as ncu counts them, kernel by kernel in the order of the launches."""
    wanted = [f"{metric}.sum" for metric in sorted(_all_metrics() & known)]
    command = [
        _program(ncu), "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
        "--metrics", ",".join(wanted), sys.executable, "-m", "benchmarks.ncu_driver", str(case),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{case.name}: ncu failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [_counters(row, known) for row in _rows(done.stdout.splitlines())]


def _rows(lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """Rows of ncu's CSV; the line after its header gives units."""
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise SystemExit("ncu printed no table:\n" + "\n".join(lines[-20:]))
    rows = list(csv.DictReader(lines[start:]))
    yield from (row for row in rows if row["ID"].strip().isdigit())


def _counters(row: Mapping[str, str], known: set[str]) -> dict[str, float]:
    values = {m: float(row[f"{m}.sum"].replace(",", "") or 0) for m in _all_metrics() & known}
    found = {}
    for name, metrics in METRICS.items():
        if any(metric in values for metric in metrics):
            found[name] = sum(values.get(metric, 0.0) for metric in metrics)
    if ARITHMETIC.keys() <= values.keys():
        found["fp32 operations"] = sum(each * values[metric] for metric, each in ARITHMETIC.items())
    return found


def _all_metrics() -> set[str]:
    return {metric for metrics in METRICS.values() for metric in metrics} | set(ARITHMETIC)


def _program(ncu: str) -> str:
    path = shutil.which(ncu)
    if path is None:
        raise SystemExit(f"{ncu} is not here: install Nsight Compute, or name it with --ncu")
    return path


if __name__ == "__main__":
    sys.exit(main())
