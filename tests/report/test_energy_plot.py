"""The plot of energy against time: every candidate with both, and the line of those that no other beats in both."""

from dataclasses import replace
from datetime import UTC, datetime

from autotune.core.measurement import Energy
from autotune.report.page.energy import energy_plots
from autotune.report.page.sections import Section
from autotune.store.records import StoredMeasurement
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok


def record(number: int, ms: float, mj: float | None, template: str = "simt") -> StoredMeasurement:
    energy = None if mj is None else Energy(mj, mj / ms, ms, 10, 0.5, "counter")
    return StoredMeasurement(
        id=number, device="h200", search_id=None, problem=FORWARD, candidate=candidate(number, template),
        source_hash=SOURCE, stage="trial", package_version="1", created_at=datetime(2026, 1, 1, tzinfo=UTC),
        measurement=replace(ok(ms), energy=energy),
    )  # fmt: skip


def section(*records: StoredMeasurement) -> Section:
    return Section(FORWARD, H200, "measured", records, (), records[0], None)


def test_candidates_and_their_front() -> None:
    [plot] = energy_plots(section(
        record(1, 1.0, 700.0), record(2, 2.0, 500.0, "<b>mma</b>"), record(3, 2.5, 600.0), record(4, 0.5, None),
    ))  # fmt: skip
    *families, front = plot.data
    mma, simt = sorted(families, key=lambda trace: len(trace["x"]))
    assert (mma["name"], mma["x"], mma["y"]) == ("&lt;b&gt;mma&lt;/b&gt;", [2.0], [500.0])
    assert (simt["x"], simt["y"]) == ([1.0, 2.5], [700.0, 600.0])
    assert (front["x"], front["y"]) == ([1.0, 2.0], [700.0, 500.0])
    assert simt["text"][0].endswith(": 1 ms, 700 mJ, record 1")
    assert plot.layout["yaxis"]["title"]["text"] == "mJ a call (log)"
    assert not plot.estimated


def test_no_energy_no_plot() -> None:
    assert list(energy_plots(section(record(1, 1.0, None)))) == []
