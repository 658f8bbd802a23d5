"""How a climbed ladder is shown: a table, and a plot of the times."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.problem import Problem
from autotune.core.values import format_config
from autotune.core.words import format_ms
from autotune.ladder.climbed import Climb, Rung
from autotune.ladder.versions import PUBLISHED_GPU
from autotune.report.pictures import INK, MUTED, check_plot, dress_axes, save_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEASURED, _PUBLISHED, _PEERS = "#2a78d6", "#1baf7a", "#c2571a"  # told apart by people who do not see red or green, too


def table_columns(climb: Climb) -> list[str]:
    """Headings of `table_rows`; `>` marks those set to the right. Estimated times are headed as such."""
    time = "est. ms" if climb.estimated else "ms"
    columns = ["version", "idea", f">{time}", ">own ms", ">x before", ">x first", ">GB/s", ">roofline"]
    return [*columns, *([f">{PUBLISHED_GPU} ms"] if _has_published(climb) else []), "family", "configuration"]


def _has_published(climb: Climb) -> bool:
    peers = climb.peers.attention.keys() & climb.ladder.peers_published.keys()
    return bool(peers) or any(rung.version.published_ms is not None for rung in climb.rungs)


def table_rows(climb: Climb) -> Iterator[list[str]]:
    """One row a version, then one a peer; of a version that was skipped the reason stands for its configuration."""
    has_published = _has_published(climb)
    for rung, factors in zip(climb.rungs, climb.factors(), strict=True):
        figures = _published(rung.version.published_ms, has_published)
        if rung.own is None or rung.ms is None:
            dashes = ["-"] * 6
            yield [rung.version.name, rung.version.idea, *dashes, *figures, "", f"skipped: {rung.skipped}"]
            continue
        share = rung.roofline(climb.spec)
        yield [
            rung.version.name, rung.version.idea, format_ms(rung.ms), format_ms(rung.own.ms), *map(_factor, factors),
            f"{rung.own.best.gbs:.1f}", "" if share is None else f"{share:.1%}", *figures,
            rung.own.best.candidate.template, format_config(rung.own.best.candidate.config),
        ]  # fmt: skip
    yield from _peer_rows(climb, has_published)


def _peer_rows(climb: Climb, has_published: bool) -> Iterator[list[str]]:
    first = climb.first_ms
    for name, ms in sorted(climb.peers.attention.items(), key=lambda item: -item[1]):
        figures = _published(climb.ladder.peers_published.get(name), has_published)
        factor = _factor(None if first is None else first / ms)
        yield ["peer", f"PyTorch: {name}", format_ms(ms), "", "", factor, "", "", *figures, "", ""]


def _published(ms: float | None, has_published: bool) -> list[str]:
    return [format_ms(ms) if ms else ""] if has_published else []


def summary_lines(climb: Climb) -> Iterator[str]:
    """What was climbed and what the figures are, before the table."""
    yield f"ladder of {climb.problem} on {climb.spec.title}"
    if climb.estimated:
        yield (
            f"times are ESTIMATES for {climb.spec.title}, not measurements: kernels were executed and verified on the "
            "emulator, on a reduced batch"
        )
    if climb.ladder.note:
        yield climb.ladder.note
    if climb.peers.missing:
        yield f"no peers were measured: {climb.peers.missing}"
    if climb.interrupted:
        yield "interrupted: the same command goes on from here"


def shared_lines(climb: Climb) -> Iterator[str]:
    """The kernels that versions share, each with its time: `dP = dO·Vᵀ (fp16): 0.123 ms, mma BLOCK_M=…`.

    Beside a product stands what cuBLAS takes for the whole of it, where that was measured.
    """
    named: dict[str, list[str]] = {}
    times = {}
    for rung in climb.rungs:
        for timed in rung.shared:
            names = named.setdefault(timed.problem.key, [])
            names += [] if timed.part.name in names else [timed.part.name]
            peers = climb.peers.products.get(timed.problem.key, {})
            beside = "".join(f"; {name} {format_ms(ms)} ms" for name, ms in peers.items())
            said = f"{format_ms(timed.best.ms)} ms, {timed.best.candidate}{beside}"
            times[timed.problem.key] = f"({_kind(timed.problem)}): {said}"
    for key, names in named.items():
        yield f"{', '.join(names)} {times[key]}"
    if climb.peers.versions:
        yield "peers: " + ", ".join(f"{name} {version}" for name, version in climb.peers.versions.items())


def _kind(problem: Problem) -> str:
    in_place = problem.fields.get("interleaved", "none") != "none"
    return f"{problem.dtype}, in place" if in_place else problem.dtype


def write_plot(climb: Climb, path: Path) -> None:
    """Draw the times of the versions, and the published ones, as a picture.

    Raises:
        UsageError: as `check_plot`, or the file cannot be written.
    """
    check_plot(path)
    save_plot(draw(climb), path)


def draw(climb: Climb) -> "Figure":
    """Milliseconds of each version's pass on a logarithmic axis, labelled; published times and peers beside them."""
    from matplotlib.figure import Figure

    timed = [rung for rung in climb.rungs if rung.ms is not None]
    peers = sorted(climb.peers.attention.items(), key=lambda item: -item[1])
    figure = Figure(figsize=(1.6 + 1.0 * max(4, len(timed) + len(peers)), 4.8), layout="constrained")
    axes = figure.add_subplot()
    series = _series(climb, timed, peers)
    for label, marker, colour, times in series:
        _line(axes, label, marker, colour, times)
    _dress(axes, climb, [*(rung.version.name for rung in timed), *(name for name, _ in peers)])
    if len(series) > 1:
        axes.legend(frameon=False, labelcolor=INK)
    return figure


_Series = tuple[str, str, str, list[float | None]]


def _series(climb: Climb, timed: list[Rung], peers: list[tuple[str, float]]) -> list[_Series]:
    """Label, marker, colour and a time for each version, then for each peer."""
    kind = "estimated for" if climb.estimated else "measured on"
    series: list[_Series] = [(f"{kind} {climb.spec.title}", "o", _MEASURED, [rung.ms for rung in timed])]
    if peers:
        times: list[float | None] = [*[None] * len(timed), *(ms for _, ms in peers)]
        series.append(("PyTorch's backends in the same run", "s", _PEERS, times))
    published = [rung.version.published_ms for rung in timed]
    published += [climb.ladder.peers_published.get(name) for name, _ in peers]
    if any(published):
        series.append((f"published, {climb.ladder.published_for}", "D", _PUBLISHED, published))
    return series


def _line(axes: Any, label: str, marker: str, colour: str, times: list[float | None]) -> None:
    points = [(at, ms) for at, ms in enumerate(times) if ms]
    axes.plot(*zip(*points, strict=True), label=label, marker=marker, color=colour, markersize=8,
              linewidth=0 if colour == _PEERS else 2, markeredgecolor="white")  # fmt: skip
    for at, ms in points if colour != _PUBLISHED else ():
        axes.annotate(format_ms(ms), (at, ms), (0, -16), textcoords="offset points", ha="center", color=INK, fontsize=9)


def _dress(axes: Any, climb: Climb, names: list[str]) -> None:
    axes.set_yscale("log")
    axes.margins(x=0.06, y=0.14)
    axes.set_xticks(range(len(names)), names)
    kind = "estimated ms, not measured" if climb.estimated else "ms"
    axes.set_ylabel(f"{kind} (log scale)", color=MUTED)
    where = f"times estimated for {climb.spec.title}" if climb.estimated else f"measured on {climb.spec.title}"
    axes.set_title(f"{climb.problem}\n{where}", loc="left", fontsize=10, color=INK)
    dress_axes(axes)


def _factor(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.3g}"
