"""What `benchmarks.models` measured, as a Markdown table and a summary."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PEERS = {"flash": "flash2", "cudnn": "cuDNN", "efficient": "efficient", "flash4": "flash4"}
"""Peers by their names in rows, and as the table calls them."""

Row = Mapping[str, Any]
Ratio = Callable[[Row], float | None]


def ours(row: Row) -> float | None:
    """Our time after all that was done for the problem: the search's, else the look-up's."""
    for name in ("search", "quick", "look-up"):
        if name in row["ms"]:
            return float(row["ms"][name])
    return None


def over_search(name: str) -> Ratio:
    """How many times as long as the search's winner something of ours takes; None where one was not timed."""

    def ratio(row: Row) -> float | None:
        ms = row["ms"]
        return ms[name] / ms["search"] if name in ms and "search" in ms else None

    return ratio


def peer_over_ours(*names: str) -> Ratio:
    """The time of the fastest of these peers over ours: more than 1 where ours is faster."""

    def ratio(row: Row) -> float | None:
        times = [row["ms"][name] for name in names if name in row["ms"]]
        mine = ours(row)
        return min(times) / mine if times and mine is not None else None

    return ratio


RATIOS: dict[str, tuple[Ratio, bool]] = {
    "look-up / search": (over_search("look-up"), True),
    "quick / search": (over_search("quick"), True),
    "best peer / ours": (peer_over_ours(*PEERS), False),
    "flash2 / ours": (peer_over_ours("flash"), False),
}
"""By name: how it is computed, and whether its largest values are the worst."""

_WORST = 5
_BYTES_LIMIT = 4.3e12  # bytes a second that a copy reaches on an H200


def table(rows: Sequence[Row]) -> str:
    """Milliseconds of all, the ratios, how far decode is from what its bytes take; then the summary."""
    if not rows:
        return "nothing was measured"
    peers = [name for name in PEERS if any(name in row["ms"] for row in rows)]
    head = ["model", "problem", "answer", "look-up", "quick", "search", *(PEERS[name] for name in peers), *RATIOS]
    head += ["bytes at 4.3 TB/s / ours", "family"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cells(row, peers)) + " |" for row in rows]
    notes = [f"{row['name']}: {row['note']}" for row in rows if row.get("note")]
    return "\n".join([*lines, "", *summary(rows), *notes, *doubts(rows)])


def summary(rows: Sequence[Row]) -> list[str]:
    """Geometric mean and worst rows of every ratio, over all rows and by kind."""
    lines = []
    for name, (ratio, high) in RATIOS.items():
        known = {row["name"]: value for row in rows if (value := ratio(row)) is not None}
        if not known:
            continue
        worst = sorted(known.items(), key=lambda item: item[1], reverse=high)[:_WORST]
        lines.append(
            f"{name}: geometric mean {mean(list(known.values())):.3f} of {len(known)}; worst "
            + ", ".join(f"{value:.2f} ({row})" for row, value in worst)
        )
        kinds: dict[str, list[float]] = {}
        for row in rows:
            if row["name"] in known:
                kinds.setdefault(row["kind"], []).append(known[row["name"]])
        lines.append("  " + ", ".join(f"{kind} {mean(values):.3f}" for kind, values in kinds.items()))
    return lines


def doubts(rows: Sequence[Row]) -> list[str]:
    """Outputs that are not a peer's up to rounding: a wrong result, ours or theirs."""
    allowed = {"fp16": 5e-3, "bf16": 4e-2, "fp32": 1e-4}
    return [
        f"DIFFERS {row['name']}: {name} by {apart:.2e}"
        for row in rows
        for name, apart in row.get("difference", {}).items()
        if apart is not None and not apart <= allowed[row["problem"]["dtype"]]
    ]


def mean(values: Sequence[float]) -> float:
    """Geometric mean of at least one value."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _cells(row: Row, peers: Sequence[str]) -> list[str]:
    p, ms = row["problem"], row["ms"]
    heads = f"NH={p['NH']}" + (f"/{p['NH_kv']}" if p["NH_kv"] != p["NH"] else "")
    length = f"T={p['T']}" + (f", T_kv={p['T_kv']}" if p["T_kv"] != p["T"] else "")
    size = f"HS={p['HS']}" + (f"/{p['HS_v']}" if p.get("HS_v", p["HS"]) != p["HS"] else "")
    text = f"B={p['B']} {heads} {length} {size} {p['dtype']}{' causal' if p['causal'] else ''}"
    times = [f"{ms[name]:.4f}" if name in ms else "" for name in ("look-up", "quick", "search", *peers)]
    ratios = ["" if (value := ratio(row)) is None else f"{value:.2f}" for ratio, _ in RATIOS.values()]
    mine, said = ours(row), row["ours"]
    reached = f"{1e3 * row['nbytes'] / _BYTES_LIMIT / mine:.2f}" if row["kind"] == "decode" and mine else ""
    best = next(said[name] for name in ("search", "quick", "look-up") if name in said and "candidate" in said[name])
    return [
        row["name"], text, said["look-up"]["answer"], *times, *ratios, reached, best["candidate"].split(" ")[0]
    ]  # fmt: skip
