"""How a comparison with others is shown: a table, comma-separated values, and a plot over T."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.bench.contender import OURS
from autotune.bench.measured import Became, Entry, Row, Spread, fastest
from autotune.core.problem import Problem
from autotune.core.values import format_config
from autotune.core.words import format_ms, plain
from autotune.report.listing import differing
from autotune.report.pictures import INK, MUTED, check_plot, dress_axes, save_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#2a78d6", "#c2571a", "#1baf7a", "#8a4fbf", "#b5860b", "#52514e", "#d6457f", "#0f8a94")
_MARKS = "osD^vPX*"
_PANEL, _HEIGHT = 5.6, 4.2  # inches
_LABELS_A_PANEL, _LETTERS_AN_INCH = 2, 11  # of the legend beside one another; of a title in a line
_MOST_COLUMNS = 3

COLUMNS = (
    "by", ">ms", ">±%", ">TFLOP/s", ">/ ours", ">call µs", ">call ±%", ">rel. error", ">max error", "~remark"
)  # fmt: skip
"""Of every table; what the problems differ in comes before them."""


def heading_lines(rows: Sequence[Row], environment: Mapping[str, str], versions: Mapping[str, str]) -> Iterator[str]:
    """What all problems have in common, and what was measured with."""
    names = differing([row.problem.fields for row in rows])
    same = [name for name, _ in rows[0].problem.values if name not in names]
    yield f"{rows[0].problem.op} {_place(rows[0].problem, same)} on {environment.get('device', 'a GPU')}"
    said = {name: text for name, text in environment.items() if name not in {"device", "host"}} | dict(versions)
    yield ", ".join(f"{name} {text}" for name, text in said.items())


def table_columns(rows: Sequence[Row]) -> list[str]:
    """Headings of `table_rows`, marked as `autotune.report.table` has it."""
    return [*(f">{name}" for name in _varying(rows)), *COLUMNS]


def table_rows(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Of each problem the contenders that were called, fastest first, then those that do not compute it."""
    names = _varying(rows)
    for row in rows:
        fields = [plain(row.problem[name]) for name in names]
        for entry in sorted((e for e in row.entries if e.became is not Became.ABSENT), key=_order):
            yield [*fields, *_cells(row, entry)]


def absent_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Who is not here, and why."""
    for entry in rows[0].entries:
        if entry.became is Became.ABSENT:
            yield f"absent: {entry.title} ({entry.name}): {entry.reason}"


def legend_lines(rows: Sequence[Row]) -> Iterator[str]:
    """What the figures are, and who is fastest where."""
    yield (
        "ms: a call's time on the GPU, L2 flushed, median of interleaved rounds; ±%: half the range of the rounds' "
        "quartiles; call µs: what a call costs the host"
    )
    yield "/ ours: time over ours, more than 1 where ours is faster; errors: against float64, of the output worst off"
    part = [row for row in rows if row.checked < row.slices]
    for row in part:
        where = f"{_place(row.problem, _varying(rows))}: " if len(rows) > 1 else ""
        yield f"{where}{row.checked} of {row.slices} (batch, key head) slices were compared with float64"
    firsts = [found.name for row in rows if (found := fastest(row.entries)) is not None]
    if len(rows) > 1:
        yield f"ours is the fastest of those that are right on {firsts.count(OURS)} of {len(rows)} problems"


def csv_rows(rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    """A row for each contender on each problem: the problem's fields, times, errors by output, and the reason."""
    for row in rows:
        for entry in row.entries:
            data = entry.to_json()
            errors = {
                f"{kind}_error.{name}": value
                for name, error in data.pop("errors").items()
                for kind, value in error.items()
            }
            rounds = data.pop("rounds")
            config = data.pop("config", {})
            yield {
                **row.problem.to_json(), **data, "tflops": row.tflops(entry), "over_ours": row.speed(entry),
                "rounds": len(rounds), "checked": row.checked, "slices": row.slices, **errors,
                "config": format_config(config),
            }  # fmt: skip


def progress_line(row: Row) -> str:
    """`autotune 0.0332, PyTorch cuDNN 0.0336 …` in ms, fastest first; what is wrong is said to be."""
    timed = sorted((e for e in row.entries if e.kernel is not None), key=_order)
    texts = [f"{e.title} {format_ms(_median(e))}{' WRONG' if e.became is Became.WRONG else ''}" for e in timed]
    return ", ".join(texts) or "nothing was timed"


def write_plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """Draw TFLOP/s over T as a picture.

    Raises:
        UsageError: as `check_plot`, or the file cannot be written.
    """
    check_plot(path)
    save_plot(draw(rows, title), path)


def draw(rows: Sequence[Row], title: str) -> "Figure":
    """TFLOP/s of every contender that is right over T, with the range of its rounds; a panel for each combination of
    the other fields that vary."""
    from matplotlib.figure import Figure

    others = [name for name in _varying(rows) if name != "T" and not _follows(rows, name)]
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(_place(row.problem, others), []).append(row)
    columns = min(_MOST_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(_PANEL * columns, _HEIGHT * lines + 0.8), layout="constrained")
    all_axes = figure.subplots(lines, columns, squeeze=False)
    titles = list(dict.fromkeys(e.title for row in rows for e in row.entries if _is_plotted(e)))
    for place, axes in enumerate(all_axes.flat):
        if place >= len(panels):
            axes.set_visible(False)
            continue
        name, members = list(panels.items())[place]
        for at, contender in enumerate(titles):
            _line(axes, contender, at, members)
        _dress(axes, name, sorted({row.problem.integer("T") for row in members}))
    handles: dict[str, Any] = {}
    for axes in all_axes.flat:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=_LABELS_A_PANEL * columns,
            frameon=False, labelcolor=INK, fontsize=9,
        )  # fmt: skip
    wrapped = textwrap.fill(title, int(figure.get_figwidth() * _LETTERS_AN_INCH), break_long_words=False)
    figure.suptitle(wrapped, fontsize=10, color=INK, x=0.01, ha="left")
    return figure


def _line(axes: Any, title: str, at: int, rows: Sequence[Row]) -> None:
    points = []
    for row in sorted(rows, key=lambda row: row.problem.integer("T")):
        for entry in row.entries:
            if entry.title == title and _is_plotted(entry) and entry.kernel is not None:
                speeds = [row.flops / ms / 1e9 for ms in (entry.kernel.median, entry.kernel.high, entry.kernel.low)]
                points.append((row.problem.integer("T"), *speeds))
    if points:
        lengths, speeds, lows, highs = (list(values) for values in zip(*points, strict=True))
        down = [max(0.0, speed - low) for speed, low in zip(speeds, lows, strict=True)]
        up = [max(0.0, high - speed) for speed, high in zip(speeds, highs, strict=True)]
        axes.errorbar(
            lengths, speeds, yerr=[down, up], label=title, marker=_MARKS[at % len(_MARKS)], markersize=6, capsize=2,
            color=_COLOURS[at % len(_COLOURS)], linewidth=2.4 if title == OURS else 1.4, elinewidth=1,
            markeredgecolor="white",
        )  # fmt: skip


def _dress(axes: Any, name: str, lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(T) for T in lengths])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("T", color=MUTED)
    axes.set_ylabel("TFLOP/s", color=MUTED)
    axes.set_title(name, loc="left", fontsize=9, color=INK)
    dress_axes(axes)


def _cells(row: Row, entry: Entry) -> list[str]:
    speed, worst, call = row.speed(entry), entry.worst, entry.call
    return [
        entry.title,
        format_ms(_median(entry)),
        _percent(entry.kernel),
        _rate(row.tflops(entry)),
        "" if speed is None else f"{speed:.2f}",
        "" if call is None else f"{call.median:.1f}",
        _percent(call if len(entry.rounds) > 1 else None),
        "" if worst is None else f"{worst[1].relative:.1e}",
        "" if worst is None else f"{worst[1].largest:.1e}",
        _remark(entry),
    ]


def _rate(tflops: float | None) -> str:
    """Three digits, more before the point."""
    if tflops is None:
        return ""
    return f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.3g}"


def _remark(entry: Entry) -> str:
    said = f"{entry.said['answer']}, {entry.said['template']}" if "template" in entry.said else ""
    labels = {Became.WRONG: "WRONG", Became.FAILED: "failed", Became.UNSUPPORTED: "not computed"}
    if entry.became in labels:
        return f"{labels[entry.became]}: {entry.reason}" + (f" ({said})" if said else "")
    return said


def _order(entry: Entry) -> tuple[int, float]:
    places = {Became.OK: 0, Became.WRONG: 1}
    return places.get(entry.became, 2), _median(entry) or 0.0


def _median(entry: Entry) -> float | None:
    return None if entry.kernel is None else entry.kernel.median


def _percent(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.percent:.1f}"


def _is_plotted(entry: Entry) -> bool:
    return entry.became is Became.OK and entry.kernel is not None


def _varying(rows: Sequence[Row]) -> list[str]:
    """The fields in which the problems differ; one that always equals another is left out."""
    names = differing([row.problem.fields for row in rows])
    return [name for name in names if not (name in {"T_kv", "NH_kv", "HS_v"} and _follows(rows, name))]


def _follows(rows: Sequence[Row], name: str) -> bool:
    """Whether a field of keys or values has the queries' value everywhere."""
    query = name.rpartition("_")[0]
    return query != "" and all(row.problem[name] == row.problem[query] for row in rows)


def _place(problem: Problem, names: Sequence[str]) -> str:
    return " ".join(f"{name}={plain(problem[name])}" for name in names)
