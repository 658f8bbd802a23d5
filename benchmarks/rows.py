"""The problems that the benchmarks run through: those of the recorded peers' table, the default problem's lengths, and
some of those that look-ups are swept over (`benchmarks.cliffs`).

Chosen by op, dtype, head size, mask and length, and divided among GPUs by whole groups: rows of one op, dtype, head
size and mask share builds and first candidates, so they belong into one search after the other on one GPU.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from autotune.core.problem import Problem
from autotune.ops.registry import get_op

RECORDED = Path(__file__).parent / "data" / "peers_h200.json"
"""Peers' times on an H200: {"source": …, "rows": [{op, dtype, HS, causal, T, B, NH, "ms": {kind: {peer: ms}}}]}."""

SETS = ("peers", "default", "full", "sweeps")
"""The recorded table; what else ships winners: B=4, NH=12, HS=64, causal, T from 512 to 4096, fp16 and fp32; all fp32
rows of the two once more, for families of full precision alone; and some of the sweeps' problems, from which others are
told: few blocks, heads that share keys, lengths far apart."""

Group = tuple[str, str, int, bool]
"""Op, dtype, head size, causal."""

_LEAD = 2.0  # rows' worth of work that a group costs besides its rows: its first row is searched longer
_FLOPS_A_ROW = 1e13  # flops that weigh as much as a row


@dataclass(frozen=True)
class Row:
    """A problem, and the peers' recorded milliseconds by kind (`kernel`, `sustained`) and peer, where there are any.

    `full_precision`: only families whose products are those of the dtype are asked about.
    """

    problem: Problem
    recorded: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False)
    full_precision: bool = False

    @property
    def group(self) -> Group:
        """Rows of the same group differ in B, NH and T alone."""
        p = self.problem
        return p.op, p.dtype, p.integer("HS"), bool(p["causal"])

    @property
    def flops(self) -> float:
        """By the op's count."""
        return get_op(self.problem.op).flops(self.problem)

    @property
    def label(self) -> str:
        """Short text: `backward fp16 HS=64 causal T=4096 B=4 NH=32`."""
        p = self.problem
        mask = "causal" if p["causal"] else "full"
        full = " full precision" if self.full_precision else ""
        shared = "" if p["NH_kv"] == p["NH"] else f" NH_kv={p['NH_kv']}"
        keys = "" if p["T_kv"] == p["T"] else f" T_kv={p['T_kv']}"
        return f"{p.op} {p.dtype} HS={p['HS']} {mask} T={p['T']}{keys} B={p['B']} NH={p['NH']}{shared}{full}"

    def recorded_ratio(self, peer: str, other: str) -> float | None:
        """Recorded time of `peer` over that of `other`: of kernels alone, else of whole calls; None where one lacks."""
        for kind in ("kernel", "sustained"):
            times = self.recorded.get(kind, {})
            if peer in times and other in times:
                return times[peer] / times[other]
        return None


@cache
def source_of_recorded() -> str:
    """What the recorded figures were measured on, and how."""
    return str(_data()["source"])


@cache
def peer_rows() -> tuple[Row, ...]:
    """The recorded table's problems."""
    return tuple(_row(entry) for entry in _data()["rows"])


@cache
def default_rows() -> tuple[Row, ...]:
    """The default problem's lengths, without those of the recorded table."""
    known = {row.problem for row in peer_rows()}
    problems = (
        get_op(op).problem(T=T, dtype=dtype)
        for op in ("forward", "backward") for dtype in ("fp16", "fp32") for T in (512, 1024, 2048, 4096)
    )  # fmt: skip
    return tuple(Row(problem) for problem in problems if problem not in known)


@cache
def full_rows() -> tuple[Row, ...]:
    """The problems whose fastest families need not multiply in full precision."""
    rows = (*peer_rows(), *default_rows())
    return tuple(replace(row, full_precision=True) for row in rows if row.problem.dtype == "fp32")


@cache
def sweep_rows() -> tuple[Row, ...]:
    """Problems of the sweeps with few blocks, heads that share keys, and lengths far apart."""
    apart = (
        {"B": 1, "NH": 12, "T": 320}, {"B": 1, "NH": 12, "T": 2048},
        {"B": 2, "NH": 16, "T": 5792, "T_kv": 724}, {"B": 2, "NH": 16, "T": 724, "T_kv": 5792},
    )  # fmt: skip
    gradients = (
        {"B": 2, "NH": 16, "T": 16384, "T_kv": 256},
        {"B": 2, "NH": 64, "NH_kv": 8, "T": 1024}, {"B": 2, "NH": 64, "NH_kv": 1, "T": 1024},
    )  # fmt: skip
    cached = tuple({"B": B, "NH": 32, "NH_kv": 8, "T": T, "T_kv": 8192} for B in (1, 16) for T in (65, 385))
    problems = []
    for HS in (64, 128):
        for causal in (False, True):
            forward = (*apart, *(() if causal else cached))
            chosen = [("forward", fields) for fields in forward] + [
                ("backward", fields) for fields in (*apart, *gradients)
            ]
            problems += [get_op(op).problem(HS=HS, causal=causal, dtype="fp16", **fields) for op, fields in chosen]
    return tuple(map(Row, problems))


def add_row_options(parser: argparse.ArgumentParser) -> None:
    """`--set`, one option a field (lists, comma-separated), and `--shard`."""
    parser.add_argument("--set", default="peers", help=f"of {', '.join(SETS)} those named, comma-separated")
    for name in ("op", "dtype", "HS", "causal", "T"):
        parser.add_argument(f"--{name}", default=None, help="only these, comma-separated")
    parser.add_argument("--shard", default="0/1", help="INDEX/COUNT: this part of the rows, by whole groups")


def chosen_rows(options: argparse.Namespace) -> list[Row]:
    """The rows that the options name, groups together.

    Raises:
        ValueError: an unknown set, or a shard that is none.
    """
    rows: list[Row] = []
    sets = dict(zip(SETS, (peer_rows, default_rows, full_rows, sweep_rows), strict=True))
    for name in options.set.split(","):
        if name not in sets:
            raise ValueError(f"--set {name!r} is not one of {', '.join(SETS)}")
        rows += sets[name]()
    index, count = (int(text) for text in options.shard.split("/"))
    return shard([row for row in rows if _wanted(row, options)], index, count)


def shard(rows: Sequence[Row], index: int, count: int) -> list[Row]:
    """Part `index` of `count`: whole groups, heaviest first to whoever has least, each group's dearest row first.

    Raises:
        ValueError: there is no such part.
    """
    if not 0 <= index < count:
        raise ValueError(f"there is no shard {index}/{count}")
    parts: list[list[list[Row]]] = [[] for _ in range(count)]
    for members in sorted(grouped(rows), key=_weight, reverse=True):
        min(parts, key=lambda part: sum(map(_weight, part))).append(members)
    return [row for members in parts[index] for row in sorted(members, key=lambda row: -row.flops)]


def grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows group by group, in order of first appearance."""
    groups: dict[Group, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return list(groups.values())


def _weight(rows: Sequence[Row]) -> float:
    return _LEAD + sum(1.0 + row.flops / _FLOPS_A_ROW for row in rows)


def _wanted(row: Row, options: argparse.Namespace) -> bool:
    for name in ("op", "dtype", "HS", "causal", "T"):
        given = getattr(options, name)
        value = row.problem.op if name == "op" else row.problem[name]
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if given is not None and text not in given.split(","):
            return False
    return True


def _row(entry: Mapping[str, Any]) -> Row:
    fields = {name: entry[name] for name in ("B", "NH", "T", "HS", "dtype", "causal")}
    return Row(get_op(entry["op"]).problem(**fields), entry["ms"])


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return data
