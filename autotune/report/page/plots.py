"""Plots of a section, as Plotly has them: plain data, which the page's own copy of plotly.js draws.

Plotly reads a few HTML tags in its texts, so whatever comes from a database is escaped here (`shown`).
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.core.outcome import Outcome
from autotune.core.values import Value
from autotune.core.words import format_ms, number, printable
from autotune.report.page.sections import Section, counts
from autotune.store.records import StoredMeasurement

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#3a9bdc", "#6b6b6b", "#000000")
"""Told apart by people who do not see red or green, too."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")

OUTCOME_COLOURS = {
    Outcome.OK: "#009e73", Outcome.PRUNED: "#9ecae1", Outcome.INFEASIBLE: "#c7c7c7", Outcome.COMPILE_ERROR: "#8a6d00",
    Outcome.LAUNCH_ERROR: "#e69f00", Outcome.WRONG_RESULT: "#d55e00", Outcome.TIMEOUT: "#cc79a7",
    Outcome.CRASH: "#7b1fa2",
}  # fmt: skip

ESTIMATED = "ESTIMATES, not measured"
"""What every plot of estimates says in the plot itself: pictures are cut out of pages."""

_INK, _GRID = "#1b1b1b", "#dcdcd4"
_ROW = 26  # pixels of a bar
_LONGEST = 22  # characters of a label
_BESIDE = 10  # characters of labels that fit beside one another


@dataclass(frozen=True)
class Plot:
    """`title` and `said` stand above the plot as text, which folds where it is narrow."""

    name: str
    title: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    estimated: bool
    said: str = ""
    height: int = 340

    @property
    def figure(self) -> dict[str, Any]:
        """Of `Plotly.newPlot`."""
        layout: dict[str, Any] = {
            "font": {"family": "system-ui, sans-serif", "size": 12, "color": _INK},
            "margin": {"l": 52, "r": 14, "t": 28, "b": 44},
            "paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff", "hovermode": "closest", "colorway": list(COLOURS),
            "legend": {
                "orientation": "h", "x": 0, "xref": "container", "xanchor": "left", "y": 0, "yref": "container",
                "yanchor": "bottom",
            },
            "hoverlabel": {"align": "left", "font": {"size": 11}}, "height": self.height, **self.layout,
        }  # fmt: skip
        if self.estimated:
            layout["title"] = _ESTIMATED_TITLE
        return {"data": list(self.data), "layout": layout}


_ESTIMATED_TITLE = {
    "text": f"<b>{ESTIMATED}</b>", "xref": "container", "x": 0, "xanchor": "left", "yref": "container", "y": 1,
    "yanchor": "top", "pad": {"l": 6, "t": 4}, "font": {"size": 11, "color": "#a33c00"},
}  # fmt: skip


def shown(text: object) -> str:
    """A text in which Plotly sees no tag, and a terminal or browser nothing to obey."""
    return html.escape(printable(str(text)), quote=False)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis; `title` is ours, not a database's."""
    return {
        "title": {"text": title, "standoff": 8}, "gridcolor": _GRID, "zeroline": False, "automargin": True,
        "linecolor": _GRID, **more,
    }  # fmt: skip


def category_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """An axis of names, long ones cut in its labels: a phone has no room for them, and what is pointed at has them."""
    short = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names]
    ticks = {"tickmode": "array", "tickvals": list(map(shown, names)), "ticktext": list(map(shown, short))}
    return axis("", type="category", **ticks, **more)


def time_axis(section: Section, *, below: bool = False, **more: Any) -> dict[str, Any]:
    """Milliseconds, called estimated where they are; `below` a plot there is room for few."""
    return axis(
        f"{'estimated ' if section.estimated else ''}ms (log)", type="log", nticks=4 if below else 7, **LOG, **more
    )


LOG = {"minorloglabels": "complete"}
"""Of logarithmic axes: 0.2 between 0.1 and 1, not 2."""


@dataclass
class Run:
    """The trials of one search, in order; or those that belong to none."""

    name: str
    trials: list[StoredMeasurement] = field(default_factory=list)


def runs_of(section: Section) -> list[Run]:
    """Searches with trials of their own, then what was imported."""
    runs: dict[int | None, Run] = {}
    for search in section.searches:
        runs[search.id] = Run(f"search {search.id}")
    for record in section.trials:
        runs.setdefault(record.search_id, Run("of no search here")).trials.append(record)
    return [run for run in runs.values() if run.trials]


def history(section: Section) -> Plot:
    """Every trial's time, the best so far of each search, and below what failed, by its kind."""
    runs, families = runs_of(section), section.families
    data: list[dict[str, Any]] = []
    for place, family in enumerate(families):
        points = [
            (at, r)
            for run in runs
            for at, r in enumerate(run.trials, 1)
            if r.candidate.template == family and counts(r)
        ]
        if points:
            data.append(_points(family, place, [at for at, _ in points], [r for _, r in points]))
    for place, run in enumerate(runs):
        xs, ys = _best_so_far(run.trials)
        if xs:
            dash = ("solid", "dash", "dot", "dashdot")[place % 4]
            data.append({
                "type": "scatter", "mode": "lines", "x": xs, "y": ys, "name": shown(f"best so far, {run.name}"),
                "line": {"shape": "hv", "dash": dash, "width": 2, "color": COLOURS[-1 - place % len(COLOURS)]},
                "hoverinfo": "name+y",
            })  # fmt: skip
    bad = [(at, r) for run in runs for at, r in enumerate(run.trials, 1) if not counts(r)]
    kinds = [kind for kind in Outcome if any(r.measurement.outcome == kind for _, r in bad)]
    if bad:
        data.append({
            "type": "scatter", "mode": "markers", "x": [at for at, _ in bad], "yaxis": "y2", "showlegend": False,
            "y": [r.measurement.outcome.value for _, r in bad], "text": [_told(r) for _, r in bad], "hoverinfo": "text",
            "marker": {"symbol": "x", "size": 7, "color": [OUTCOME_COLOURS[r.measurement.outcome] for _, r in bad]},
        })  # fmt: skip
    share = min(0.45, 0.09 * len(kinds) + (0.04 if kinds else 0.0))
    layout = {
        "xaxis": axis("trial of its search", rangemode="tozero", anchor="y2" if bad else "y"),
        "yaxis": time_axis(section, domain=[share + (0.06 if bad else 0.0), 1]),
        "yaxis2": {"domain": [0, share], "type": "category", "automargin": True, "tickfont": {"size": 10},
                   "gridcolor": _GRID, "categoryorder": "array", "categoryarray": [kind.value for kind in kinds]},
    }  # fmt: skip
    if not bad:
        del layout["yaxis2"]
    said = (
        "Each dot is a right trial; the line is the best so far. What failed or was given up stands below, by its kind."
    )
    return Plot(
        "history",
        "History and best so far",
        data,
        layout,
        section.estimated,
        said,
        420 + 18 * len(families) + 18 * len(runs),
    )


def _best_so_far(trials: Sequence[StoredMeasurement]) -> tuple[list[int], list[float]]:
    xs, ys, best = list[int](), list[float](), float("inf")
    for at, record in enumerate(trials, 1):
        ms = record.measurement.ms
        if counts(record) and ms is not None and ms < best:
            best = ms
            xs.append(at)
            ys.append(ms)
    if xs and xs[-1] < len(trials):
        xs.append(len(trials))
        ys.append(best)
    return xs, ys


def outcomes(section: Section) -> Plot:
    """How the trials of each family ended."""
    families = list(reversed(section.families))
    data = []
    for kind in Outcome:
        ended = [
            sum(r.measurement.outcome == kind and r.candidate.template == f for r in section.trials) for f in families
        ]
        if any(ended):
            data.append({
                "type": "bar", "orientation": "h", "name": kind.value, "x": ended, "y": [shown(f) for f in families],
                "marker": {"color": OUTCOME_COLOURS[kind]}, "hoverinfo": "x+name",
            })  # fmt: skip
    layout = {"barmode": "stack", "xaxis": axis("trials"), "yaxis": category_axis(families)}
    where = "verified on the emulator; times are estimates" if section.estimated else "verified and timed on the GPU"
    height = 130 + _ROW * len(families) + 17 * len(data)
    return Plot("outcomes", "Outcomes by kind", data, layout, section.estimated, f"Trials were {where}.", height)


def family_times(section: Section) -> Plot | None:
    """The slice over families: times of all right trials."""
    data = []
    families = section.families
    for place, family in enumerate(families):
        records = [r for r in section.timed if r.candidate.template == family]
        if records:
            points = _points(family, place, [shown(family)] * len(records), records)
            data.append(_turned(points) | {"showlegend": False})
    if not data:
        return None
    layout = {"xaxis": time_axis(section, below=True), "yaxis": category_axis(families, autorange="reversed")}
    return Plot("families", "Times by family", data, layout, section.estimated, height=120 + _ROW * len(families))


def slices(section: Section, family: str) -> Iterator[Plot]:
    """A plot for each parameter of a family in which its right trials differ: time over value."""
    records = [r for r in section.timed if r.candidate.template == family]
    place = section.families.index(family)
    for name in dict.fromkeys(name for record in records for name in record.candidate.config):
        having = [r for r in records if name in r.candidate.config]
        values: list[Value] = sorted({r.candidate.config[name] for r in having}, key=_order)
        if len(values) < 2:
            continue
        points = _points(family, place, [shown(r.candidate.config[name]) for r in having], having)
        points["text"] = [f"record {r.id}: {format_ms(r.measurement.ms)} ms" for r in having]  # in full in the history
        names = list(map(str, values))
        listed = category_axis(names, categoryorder="array", categoryarray=list(map(shown, names)))
        layout: dict[str, Any] = {"xaxis": listed, "yaxis": time_axis(section), "showlegend": False}
        height = 230
        if max(map(len, names)) > _BESIDE:  # below the plot they would be turned, and take half of it
            layout |= {"xaxis": time_axis(section, below=True), "yaxis": listed}
            points, height = _turned(points), max(230, 120 + _ROW * len(names))
        yield Plot(f"slice-{name}", name, [points], layout, section.estimated, height=height)


def _turned(points: Mapping[str, Any]) -> dict[str, Any]:
    return {**points, "x": points["y"], "y": points["x"]}


def _order(value: Value) -> tuple[bool, float, str]:
    return (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")


def _points(family: str, place: int, xs: Sequence[object], records: Sequence[StoredMeasurement]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": shown(family), "x": list(xs),
        "y": [record.measurement.ms for record in records], "text": [_told(record) for record in records],
        "hoverinfo": "text",
        "marker": {**marker_of(place), "opacity": 0.75},
    }  # fmt: skip


def marker_of(place: int) -> dict[str, Any]:
    """The mark of a family, by its place among the section's."""
    return {"size": 8, "color": COLOURS[place % len(COLOURS)], "symbol": SYMBOLS[place % len(SYMBOLS)]}


def _told(record: StoredMeasurement) -> str:
    """What stands beside a point that is pointed at."""
    measurement, timing = record.measurement, record.measurement.timing
    time = "" if timing is None else f" {format_ms(timing.median_ms)} ms {timing.label}"
    lines = [f"record {record.id}: {measurement.outcome.value}{time}", record.candidate.template]
    pairs = [f"{name}={value}" for name, value in record.candidate.values]
    lines += [" ".join(pairs[at : at + 3]) for at in range(0, len(pairs), 3)]
    lines += [" ".join(measurement.message.split())[:60]] if measurement.message else []
    return "<br>".join(map(shown, lines))


def importances(section: Section, family: str, found: Mapping[str, Mapping[str, float]]) -> Plot:
    """Bars: evaluator to parameter to importance."""
    first = next(iter(found.values()))
    names = sorted(first, key=lambda name: first[name])
    data = [
        {"type": "bar", "orientation": "h", "name": evaluator, "x": [values.get(n, 0.0) for n in names],
         "y": [shown(n) for n in names], "hoverinfo": "x+name"}
        for evaluator, values in found.items()
    ]  # fmt: skip
    trials = sum(r.candidate.template == family for r in section.timed)
    few = "; so few say little" if trials < 20 else ""
    said = f"By Optuna's evaluators, of log(ms), from {number(trials, 'right trial')}{few}."
    layout = {
        "xaxis": axis("importance", rangemode="tozero"),
        "yaxis": category_axis(names),
        "showlegend": len(data) > 1,
    }
    return Plot(
        "importances",
        f"Importances of parameters, {family}",
        data,
        layout,
        section.estimated,
        said,
        110 + _ROW * len(names),
    )
