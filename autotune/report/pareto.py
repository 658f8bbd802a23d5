"""The candidates that no other beats in both time and energy, as a table."""

from collections.abc import Iterator, Sequence

from autotune.core.values import format_config
from autotune.core.words import format_ms
from autotune.report.listing import differing
from autotune.report.results import energy_cells
from autotune.tuning.result import Ranked


def pareto_columns() -> list[str]:
    """Headings of `pareto_rows`; the energies are those of a call."""
    return [">ms", ">mJ", ">W", ">GFLOP/s/W", ">time", ">energy", "family", "~configuration"]


def pareto_rows(front: Sequence[Ranked]) -> Iterator[list[str]]:
    """A row a candidate, fastest first: its figures, and by how much they are above the least of all."""
    energies = [ranked.measurement.mj or 0.0 for ranked in front]
    configs = [ranked.candidate.config for ranked in front]
    names = differing(configs) if len({ranked.candidate.template for ranked in front}) == 1 < len(front) else None
    for ranked, mj in zip(front, energies, strict=True):
        config = ranked.candidate.config
        shown = config if names is None else {name: config[name] for name in names}
        yield [
            format_ms(ranked.ms), *energy_cells(ranked), _above(ranked.ms, front[0].ms), _above(mj, min(energies)),
            ranked.candidate.template, format_config(shown),
        ]  # fmt: skip


def _above(value: float, least: float) -> str:
    return "least" if value <= least else f"+{value / least - 1.0:.1%}"
