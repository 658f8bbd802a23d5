"""The plot of energy against time, where energies were measured, with the front that nothing beats in both."""

from collections.abc import Iterator
from typing import Any

from autotune.core.words import format_ms
from autotune.report.page.plots import COLOURS, LOG, SYMBOLS, Plot, axis, shown
from autotune.report.page.sections import Section
from autotune.store.records import StoredMeasurement
from autotune.tuning.objective import Figures, front


def energy_plots(section: Section) -> Iterator[Plot]:
    """One plot; none where no energy is known."""
    records = [record for record in section.timed if record.measurement.mj is not None]
    if not records:
        return
    data: list[dict[str, Any]] = []
    for place, family in enumerate(section.families):
        own = [record for record in records if record.candidate.template == family]
        if own:
            data.append({
                "type": "scatter", "mode": "markers", "name": shown(family), "x": [_figures(r)[0] for r in own],
                "y": [_figures(r)[1] for r in own], "text": [_told(r) for r in own], "hoverinfo": "text",
                "marker": {"color": COLOURS[place % len(COLOURS)], "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 8},
            })  # fmt: skip
    best = front(records, _figures)
    data.append({
        "type": "scatter", "mode": "lines", "name": "Pareto front", "x": [_figures(r)[0] for r in best],
        "y": [_figures(r)[1] for r in best], "line": {"shape": "hv", "color": COLOURS[-1]}, "hoverinfo": "skip",
    })  # fmt: skip
    layout = {
        "xaxis": axis("ms (log)", type="log", nticks=4, **LOG),
        "yaxis": axis("mJ a call (log)", type="log", nticks=7, **LOG),
    }
    said = "All that the GPU takes for a call, idle power included. The line joins what no other beats in both."
    yield Plot("energy", "Energy and time", data, layout, section.estimated, said, 380 + 18 * len(data))


def _figures(record: StoredMeasurement) -> Figures:
    return record.measurement.ms or 0.0, record.measurement.mj or 0.0


def _told(record: StoredMeasurement) -> str:
    ms, mj = _figures(record)
    return shown(f"{record.candidate.key}: {format_ms(ms)} ms, {mj:.4g} mJ, record {record.id}")
