"""What `benchmarks.against_peers` measured, as ratios and a Markdown table with a verdict a row."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune.bench.contender import OURS
from autotune.bench.measured import tolerance_of
from benchmarks.rows import Row, default_rows, peer_rows, source_of_recorded

PEERS = {"flash": "flash2", "cudnn": "cuDNN", "flash4": "flash4", "efficient": "efficient", "math": "math"}
"""Peers by the name in records, and as tables call them."""

FLASH4_RECORDED = "flash4 (recorded)"


def ratios(record: Mapping[str, Any]) -> dict[str, float]:
    """Each peer's time over ours: more than 1 where ours is faster.

    FlashAttention-4's, where it was not timed, is cuDNN's ratio times the recorded ratio of the two on the same row,
    and named so.
    """
    ms = record["ms"]
    found = {name: float(ms[name]) / float(ms[OURS]) for name in PEERS if name in ms}
    row = _row(record)
    recorded = None if row is None or "flash4" in found else row.recorded_ratio("flash4", "cudnn")
    if recorded is not None and "cudnn" in found:
        found[FLASH4_RECORDED] = found["cudnn"] * recorded
    return found


def parse_targets(text: str) -> dict[str, float]:
    """`cudnn=0.9,flash=1` as a mapping; `fastest` is the fastest peer timed.

    Raises:
        ValueError: an unknown peer or no number.
    """
    targets = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in {"fastest", FLASH4_RECORDED, *PEERS}:
            raise ValueError(f"--target {name!r} is not one of fastest, {', '.join(PEERS)}")
        targets[name] = float(value)
    return targets


def passes(record: Mapping[str, Any], targets: Mapping[str, float]) -> bool:
    """Whether our result agrees with a peer's and every ratio that is aimed at, and known, is reached."""
    known = ratios(record)
    timed = [ratio for name, ratio in known.items() if name != FLASH4_RECORDED]
    known["fastest"] = min(timed, default=math.nan)
    reached = all(known[name] >= least for name, least in targets.items() if name in known)
    return agrees(record) and bool(timed) and reached


def agrees(record: Mapping[str, Any]) -> bool:
    """Whether our outputs are a peer's, up to rounding: ||ours - peer|| / ||peer||."""
    difference, dtype = record.get("difference"), record["problem"]["dtype"]
    return difference is not None and difference <= tolerance_of(dtype)


def table(records: Sequence[Mapping[str, Any]], targets: Mapping[str, float]) -> str:
    """Milliseconds (TFLOP/s) of all, ratios to each peer, and whether the row passes; then how many reach what."""
    peers = [name for name in PEERS if any(name in record["ms"] for record in records)]
    compared = [name for name in (*PEERS, FLASH4_RECORDED) if any(name in ratios(record) for record in records)]
    head = ["op", "dtype", "HS", "causal", "T", "B", "NH", "autotune", *(PEERS[name] for name in peers)]
    head += [f"/ {PEERS.get(name, name)}" for name in compared] + ["passes", "family"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cells(record, peers, compared, targets)) + " |" for record in records]
    return "\n".join([*lines, "", *summary(records, targets)])


def summary(records: Sequence[Mapping[str, Any]], targets: Mapping[str, float]) -> list[str]:
    """How many rows are at least as fast as each peer, and the geometric mean and least of the ratios."""
    lines = []
    for name in (*PEERS, FLASH4_RECORDED):
        values = [found[name] for found in map(ratios, records) if name in found]
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            won = sum(value >= 1.0 for value in values)
            lines.append(
                f"{PEERS.get(name, name)}: as fast or faster in {won} of {len(values)} rows; geometric mean "
                f"{mean:.3f}, least {min(values):.3f}"
            )
    passing = sum(passes(record, targets) for record in records)
    aims = ", ".join(f"{name} >= {least:g}" for name, least in targets.items())
    lines.append(f"{passing} of {len(records)} rows pass ({aims}; outputs agree with a peer's)")
    if any(FLASH4_RECORDED in ratios(record) for record in records):
        lines.append(f"{FLASH4_RECORDED}: cuDNN's ratio here times flash4 / cuDNN as recorded. {source_of_recorded()}")
    return lines


def _cells(
    record: Mapping[str, Any], peers: Iterable[str], compared: Iterable[str], targets: Mapping[str, float]
) -> list[str]:
    problem, known = record["problem"], ratios(record)
    fields = [str(int(problem[n]) if n == "causal" else problem[n]) for n in ("dtype", "HS", "causal", "T", "B", "NH")]
    times = [_time(record, name) for name in (OURS, *peers)]
    against = [f"{known[name]:.2f}" if name in known else "" for name in compared]
    verdict = "yes" if passes(record, targets) else "no" if agrees(record) else "WRONG"
    return [problem["op"], *fields, *times, *against, verdict, str(record["candidate"]).split(" ")[0]]


def _time(record: Mapping[str, Any], name: str) -> str:
    ms = record["ms"].get(name)
    return "" if ms is None else f"{ms:.4f} ({float(record['flops']) / ms / 1e9:.0f})"


def _row(record: Mapping[str, Any]) -> Row | None:
    rows = (*peer_rows(), *default_rows())
    return next((row for row in rows if row.problem.to_json() == record["problem"]), None)
