"""What the checker and Nsight Compute both count, and when they agree."""

from collections.abc import Mapping
from typing import Any

_L1 = "l1tex__t_{}_pipe_lsu_mem_global_op_{}"
_COPY = "sm__sass_l1tex_t_{}_pipe_lsu_mem_global_op_ldgsts_cache_{}"

METRICS: Mapping[str, tuple[str, ...]] = {
    "load requests": (_L1.format("requests", "ld"),),
    "load sectors": (_L1.format("sectors", "ld"),),
    "load bytes": ("sm__sass_data_bytes_mem_global_op_ld",),
    "copy requests": (_COPY.format("requests", "access"), _COPY.format("requests", "bypass")),
    "copy sectors": (_COPY.format("sectors", "access"), _COPY.format("sectors", "bypass")),
    "copy bytes": ("sm__sass_data_bytes_mem_global_op_ldgsts",),
    "store requests": (_L1.format("requests", "st"),),
    "store sectors": (_L1.format("sectors", "st"),),
    "store bytes": ("sm__sass_data_bytes_mem_global_op_st",),
    "atomic sectors": (_L1.format("sectors", "red"), _L1.format("sectors", "atom")),
    "shared wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared",),
    "shared load wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",),
    "shared store wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st",),
    "bank conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared",),
    "load conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld",),
    "store conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st",),
    "shared load bytes": ("sm__sass_data_bytes_mem_shared_op_ld",),
    "shared store bytes": ("sm__sass_data_bytes_mem_shared_op_st",),
    "matrix load bytes": ("sm__sass_data_bytes_mem_shared_op_ldsm",),
}
"""Ours: the metrics (`.sum` of each, added up) that count the same. Those that an ncu does not know are left out."""

ARITHMETIC: Mapping[str, int] = {
    "smsp__sass_thread_inst_executed_op_ffma_pred_on": 2,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on": 1,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on": 1,
}
"""What `fp32 operations` are made of, and how many each is."""

NAMES = (*METRICS, "fp32 operations")

_SHOWN_ONLY = ("fp32 operations", "load bytes", "copy bytes", "store bytes", "shared load bytes", "shared store bytes",
               "matrix load bytes")  # fmt: skip
"""Not judged: ncu counts arithmetic whose result is thrown away; bytes tell splitting from other differences."""

_WITH_COPIES = {
    "load requests": "copy requests", "store requests": "copy requests", "load sectors": "copy sectors",
    "store sectors": "copy sectors",
}  # fmt: skip
"""Counters of loads and stores in which an ncu may count asynchronous copies, too."""

TOLERANCE = 0.05
ARBITRATION = 0.005
"""Share of a kernel's wavefronts: requests of different warps that meet in a bank are conflicts to the hardware, and
their number differs from run to run."""


def ours(kernel: Any) -> dict[str, Any]:
    """The counters of a traced kernel (`KernelTrace`), all its blocks traced."""
    copied = {row.place for row in kernel.of("async copy")}
    rows = {
        "load": [row for row in kernel.of("global load") if row.place not in copied],
        "copy": [row for row in kernel.of("global load") if row.place in copied],
        "store": list(kernel.of("global store")),
    }
    found: dict[str, Any] = {"kernel": kernel.kernel}
    for name, of in rows.items():
        found[f"{name} requests"] = sum(row.requests for row in of)
        found[f"{name} sectors"] = sum(row.sectors for row in of)
        found[f"{name} bytes"] = sum(row.lanes * row.nbytes for row in of)
    found["atomic sectors"] = sum(row.sectors for row in kernel.of("global atomic"))
    return {**found, **_shared(kernel), "fp32 operations": kernel.arithmetic.fp32}


def _shared(kernel: Any) -> dict[str, Any]:
    loads, stores = list(kernel.of("shared load", "matrix load")), list(kernel.of("shared store"))
    shuffles = sum(row.requests for row in kernel.of("shuffle"))  # go the same way, and are counted there
    found = {"shared wavefronts": shuffles + sum(row.wavefronts for row in kernel.lines)}
    for name, rows in (("load", loads), ("store", stores)):
        found[f"shared {name} wavefronts"] = sum(row.wavefronts for row in rows)
        found[f"{name} conflicts"] = sum(row.conflicts for row in rows)
    found["bank conflicts"] = sum(row.conflicts for row in kernel.lines)
    for name, operation in (("shared load", "shared load"), ("shared store", "shared store"), ("matrix load",) * 2):
        found[f"{name} bytes"] = sum(row.lanes * row.nbytes for row in kernel.of(operation))
    return found


def counters(values: Mapping[str, float]) -> dict[str, float]:
    """Our counters as ncu has them. `values`: by metric, those that it knows."""
    found = {}
    for name, metrics in METRICS.items():
        if all(metric in values for metric in metrics):
            found[name] = sum(values[metric] for metric in metrics)
    if ARITHMETIC.keys() <= values.keys():
        found["fp32 operations"] = sum(each * values[metric] for metric, each in ARITHMETIC.items())
    return found


def all_metrics() -> set[str]:
    """Every metric that is asked for, without `.sum`."""
    return {metric for metrics in METRICS.values() for metric in metrics} | set(ARITHMETIC)


def nearest(name: str, mine: Mapping[str, Any], measured: float) -> tuple[str, float]:
    """Our counter that ncu's is to be compared with: with asynchronous copies if that is what it counts."""
    copies = mine.get(_WITH_COPIES.get(name, ""), 0)
    plain, with_copies = float(mine[name]), float(mine[name] + copies)
    if copies and abs(with_copies - measured) < abs(plain - measured):
        return f"{name} + copies", with_copies
    return name, plain


def agrees(name: str, mine: float, measured: Mapping[str, float]) -> bool | None:
    """Within 5 %; None where that is not judged."""
    if name in _SHOWN_ONLY:
        return None
    off = abs(mine - measured[name])
    if name.endswith("conflicts") and off <= ARBITRATION * measured.get("shared wavefronts", 0.0):
        return True
    return off <= TOLERANCE * max(measured[name], 1.0)


def same_bytes(mine: Mapping[str, Any], measured: Mapping[str, float]) -> bool:
    """Whether loads and stores move the same bytes, in whatever pieces."""
    names = [name for name in measured if name.endswith(" bytes")]
    return bool(names) and all(
        abs(mine[name] - measured[name]) <= TOLERANCE * max(measured[name], 1.0) for name in names
    )
