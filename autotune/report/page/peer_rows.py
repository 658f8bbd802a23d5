"""Peers beside our winners: what `autotune bench --json` writes, or any JSON that has rows with a name and a time."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.errors import UsageError
from autotune.core.words import format_ms, printable
from autotune.report.page.plots import Plot, axis, category_axis, shown
from autotune.report.page.sections import Section

_LISTS = ("rows", "results", "peers", "contenders", "entries")
_NAMES = ("title", "name", "peer", "backend", "contender", "implementation", "provider")
_TIMES = ("ms", "kernel_ms", "median_ms", "time_ms")
_WHY = ("reason", "absent", "missing", "skipped", "why", "message")
_ERRORS = ("relative", "error", "max_abs_error")
_OURS = ("winner here", "autotune", "ours")
_LARGEST = 16 * 2**20


@dataclass(frozen=True)
class PeerRow:
    """One contender on one problem: its time, or why it has none.

    `fields`: what is said of the problem; `device`: the GPU's title; `wrong`: its results are, and its time counts for
    nothing. `error`: of the output worst off, relative.
    """

    name: str
    ms: float | None
    why: str
    fields: Mapping[str, Any]
    call_us: float | None = None
    error: float | None = None
    estimated: bool = False
    wrong: bool = False
    device: str = ""

    def is_of(self, section: Section) -> bool:
        """Whether it is of a section's problem, as far as it says; it says nothing: no."""
        problem = section.problem
        known = {"op": problem.op, **problem.fields}
        told = {name: value for name, value in self.fields.items() if name in known}
        told |= {name: told[source] for name, source in problem.implied if source in told and name not in told}
        if self.device not in {"", section.identity.spec.title}:
            return False
        return bool(told) and all(str(known[name]).lower() == str(value).lower() for name, value in told.items())

    @property
    def about(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.fields.items())


def read_peers(path: Path) -> list[PeerRow]:
    """The rows of a file.

    Raises:
        UsageError: it cannot be read, is no JSON, or no row has a name and a time, or a reason for none.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"--peers {path}: larger than {_LARGEST >> 20} MiB")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--peers {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--peers {path} is not JSON: {error}") from error
    found = list(_rows(data, {}, _device(data)))
    if not found:
        raise UsageError(f"--peers {path} has no row with a name and ms: give what `autotune bench --json` wrote")
    return found


def _device(data: Any) -> str:
    """The GPU's title, as `autotune bench` says it of all rows."""
    environment = data.get("environment") if isinstance(data, Mapping) else None
    return str(environment.get("device", "")) if isinstance(environment, Mapping) else ""


def _rows(data: Any, fields: Mapping[str, Any], device: str) -> Iterator[PeerRow]:
    """Rows wherever they are; what stands around them of the problem is theirs, too."""
    if isinstance(data, list):
        for item in data:
            yield from _rows(item, fields, device)
    elif isinstance(data, Mapping):
        fields = {**fields, **_fields(data)}
        row = _row(data, fields, device)
        if row is not None:
            yield row
        for name in _LISTS:
            inner = data.get(name)
            if isinstance(inner, list):
                yield from _rows(inner, fields, device)
            elif isinstance(inner, Mapping):
                for label, item in inner.items():
                    held = item if isinstance(item, Mapping) else {"ms": item}
                    yield from _rows({"name": label, **held}, fields, device)


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    problem = data.get("problem")
    found = dict(problem) if isinstance(problem, Mapping) else {}
    plain = ("op", "B", "NH", "NH_kv", "T", "T_kv", "HS", "HS_v", "dtype", "causal", "layout")
    found |= {name: data[name] for name in plain if name in data}
    return {name: value for name, value in found.items() if isinstance(value, str | int | float)}


def _row(data: Mapping[str, Any], fields: Mapping[str, Any], device: str) -> PeerRow | None:
    name = next((data[key] for key in _NAMES if isinstance(data.get(key), str)), None)
    if name is None:
        return None
    ms = next((found for key in _TIMES if (found := _time(data.get(key))) is not None), None)
    why = next((str(data[key]) for key in _WHY if data.get(key) and isinstance(data[key], str)), "")
    if ms is None and not why and not any(key in data for key in _TIMES):
        return None
    return PeerRow(
        printable(name)[:80], ms, printable(why)[:300], fields, _time(data.get("call_us")), _error(data),
        estimated=data.get("kind") == "estimated", wrong=data.get("became") == "wrong", device=device,
    )  # fmt: skip


def _error(data: Mapping[str, Any]) -> float | None:
    """The largest of what is said of outputs."""
    outputs = data.get("errors")
    said = [data, *(outputs.values() if isinstance(outputs, Mapping) else ())]
    found = [_number(one[key]) for one in said if isinstance(one, Mapping) for key in _ERRORS if key in one]
    return max((error for error in found if error is not None), default=None)


def _time(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0.0 else None


def _number(value: Any) -> float | None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if right else None


PEER_COLUMNS = ("who", ">ms", ">call µs", ">error", "remark")


def peer_table(rows: list[PeerRow]) -> list[tuple[str, str, str, str, str]]:
    """The fastest first; those that are wrong behind them, those without a time last."""
    ordered = sorted(rows, key=lambda row: (row.ms is None, row.wrong, row.ms or 0.0))
    return [
        (row.name, format_ms(row.ms) + (" est." if row.ms and row.estimated else ""), format_ms(row.call_us),
         "" if row.error is None else f"{row.error:.2g}",
         f"{'WRONG ' if row.wrong else ''}{row.why or ('' if row.ms else 'no time')}".strip())
        for row in ordered
    ]  # fmt: skip


def peer_plot(rows: list[PeerRow], section: Section | None) -> Plot | None:
    """Bars of those that are right, the fastest at the top; our winner among them where it was measured, too."""
    bars = [(row.name, row.ms, row.estimated) for row in rows if row.ms is not None and not row.wrong]
    if not bars:
        return None
    winner = None if section is None else section.winner
    ours = winner is not None and section is not None and not section.estimated and winner.measurement.ms is not None
    if ours and winner is not None and winner.measurement.ms is not None:
        bars.append((f"winner here ({winner.candidate.template})", winner.measurement.ms, False))
    bars.sort(key=lambda bar: -bar[1])
    estimated = any(bar[2] for bar in bars)
    labels = [f"{name} (est.)" if est else name for name, _, est in bars]
    data = [{
        "type": "bar", "orientation": "h", "x": [ms for _, ms, _ in bars], "hoverinfo": "text", "textposition": "auto",
        "y": [shown(label) for label in labels],
        "text": [f"{format_ms(ms)} ms" for _, ms, _ in bars],
        "marker": {"color": ["#0072b2" if name.startswith(_OURS) else "#9a9a90" for name, _, _ in bars]},
    }]  # fmt: skip
    layout = {
        "xaxis": axis("estimated ms" if estimated else "ms", rangemode="tozero"),
        "yaxis": category_axis(labels),
    }
    said = "Measured in one run of `autotune bench`."
    if ours:
        said += " The winner's own time comes from its search, another run."
    elif section is not None and section.estimated:
        said += " Times of this section are estimates, so none of them stands among these."
    return Plot("peers", "Peers", data, layout, estimated, said, 110 + 30 * len(bars))
