"""The page itself: one HTML file with its style, its plots' data and plotly.js inside, that asks for nothing else.

A content security policy lets the browser run the page's own scripts, known by their hashes, and nothing else, and load
nothing from anywhere: whatever a database holds stays text.
"""

import base64
import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from autotune.answers.ncu_table import Profile
from autotune.core.errors import UsageError
from autotune.core.extras import install
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.values import format_config
from autotune.core.version import __version__
from autotune.core.words import format_ms, number, printable
from autotune.report import checks
from autotune.report.estimates import LAUNCH_COLUMNS, headline, launch_rows
from autotune.report.listing import energy_words
from autotune.report.page import plots
from autotune.report.page.energy import energy_plots
from autotune.report.page.examined import Examined, Source
from autotune.report.page.important import importances_of
from autotune.report.page.peer_rows import PEER_COLUMNS, PeerRow, peer_plot, peer_table
from autotune.report.page.plots import Plot
from autotune.report.page.roofline import roofline
from autotune.report.page.sections import Section, counts
from autotune.report.table import column_name
from autotune.store.records import StoredMeasurement

_HERE = Path(__file__).parent
_LONGEST_SOURCE = 400_000  # characters


@dataclass(frozen=True)
class Part:
    """A section and what was found out about it."""

    section: Section
    source: Source
    examined: Examined
    peers: Sequence[PeerRow] = ()
    profiles: Sequence[Profile] = ()


@dataclass(frozen=True)
class Page:
    """All that a page is made of. `peers` and `profiles` here are those that belong to no section."""

    database: str
    parts: Sequence[Part]
    filters: str = ""
    left_out: int = 0
    peers: Sequence[PeerRow] = ()
    profiles: Sequence[Profile] = ()


@dataclass(frozen=True)
class Table:
    """Columns are marked as `autotune.report.table` has it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    heads: Sequence[tuple[str, bool]] = field(init=False)

    def __post_init__(self) -> None:
        heads = tuple((column_name(column), column.lstrip("?~").startswith(">")) for column in self.columns)
        object.__setattr__(self, "heads", heads)


def require_libraries() -> None:
    """Raise UsageError where what draws the plots and colours the source is not installed."""
    for name, for_what in (("plotly", "draws the plots"), ("pygments", "colours the source")):
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"autotune report needs {name}, which {for_what}: {install('report')}")


def render_page(page: Page) -> str:
    """The page's text.

    Raises:
        UsageError: as `require_libraries`.
    """
    require_libraries()
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["safe_text"] = lambda text: printable(str(text))
    scripts = [_plotly(), (_HERE / "page.js").read_text(encoding="utf-8")]
    return environment.get_template("page.html.j2").render(
        title=_title(page), page=page, version=__version__, made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8") + _source_style()),
        scripts=[Markup(script) for script in scripts], hashes=[_hash(script) for script in scripts],
        winners=_winners(page), parts=[_shown_part(at, part) for at, part in enumerate(page.parts, 1)],
        any_estimates=any(part.section.estimated for part in page.parts),
        loose_peers=_peers(list(page.peers), None), loose_profiles=[_profile(profile) for profile in page.profiles],
    )  # fmt: skip


def _title(page: Page) -> str:
    if len(page.parts) == 1:
        section = page.parts[0].section
        return f"{section.problem} on {section.identity.spec.title}"
    return f"{len(page.parts)} problems"


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script")


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _source_style() -> str:
    from pygments.formatters import HtmlFormatter

    style: str = HtmlFormatter(style="tango").get_style_defs(".source")
    return style


def _coloured(code: str) -> Markup:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import CudaLexer

    return Markup(highlight(printable(code[:_LONGEST_SOURCE]), CudaLexer(), HtmlFormatter(cssclass="source")))


def _winners(page: Page) -> Table:
    """Narrow columns first: they are what a phone shows."""
    rows: list[tuple[str, ...]] = []
    for at, part in enumerate(page.parts, 1):
        section, winner = part.section, part.section.winner
        where = section.identity.name, section.problem.key
        if winner is None:
            rows.append((f"#{at}", "none", "", "", "", "", *where))
            continue
        ms, timing = winner.measurement.ms, winner.measurement.timing
        kind, est = timing.label if timing else "", " est." if section.estimated else ""
        rate = _rate(section, ms)
        rows.append((
            f"#{at}", winner.candidate.template, f"{format_ms(ms)}{est}", kind, f"{rate}{est if rate else ''}",
            winner.created_at.date().isoformat(), *where,
        ))  # fmt: skip
    return Table(("part", "family", ">ms", "kind", ">TFLOP/s", "date", "device", "problem"), rows)


def _rate(section: Section, ms: float | None) -> str:
    flops = section.op.flops(section.problem) if section.op else 0.0
    return f"{flops / (ms * 1e9):.4g}" if ms and flops else ""


def _shown_part(at: int, part: Part) -> dict[str, Any]:
    """What the template writes of a section; names of plots are made its own."""
    section = part.section
    roof = roofline(section, part.examined.estimates) if section.timed else "no right trial has a time"
    important = [(family, importances_of(section, family)) for family in section.families]
    return {
        "at": at, "section": section, "title": f"{section.problem}", "gpu": section.identity.spec.title,
        "counts": _counts(section), "winner": _winner(part), "kernels": _kernels(section),
        "searches": _searches(section), "failures": _failures(section),
        "plots": [_drawn(at, plot) for plot in (
            plots.history(section), plots.outcomes(section), *energy_plots(section),
        )],
        "families": [_drawn(at, plot) for plot in (plots.family_times(section),) if plot],
        "unimportant": [said for _, said in important if isinstance(said, str)],
        "parameters": [(family, list(_parameters(at, section, family, found))) for family, found in important],
        "roofline": None if isinstance(roof, str) else _drawn(at, roof),
        "no_roofline": roof if isinstance(roof, str) else "",
        "peers": _peers(list(part.peers), section, at), "checker": _checker(part.examined),
        "source": _coloured(part.source.code) if part.source.code else None, "no_source": part.source.why,
        "lines": part.source.code.count("\n"), "profiles": [_profile(profile) for profile in part.profiles],
    }  # fmt: skip


def _parameters(
    at: int, section: Section, family: str, found: Mapping[str, Mapping[str, float]] | str
) -> Iterator[dict[str, Any]]:
    """Of a family: its parameters' importances, and a slice of each."""
    if not isinstance(found, str):
        yield _drawn(at, plots.importances(section, family, found), family)
    for plot in plots.slices(section, family):
        yield _drawn(at, plot, family)


def _drawn(at: int, plot: Plot, family: str = "") -> dict[str, Any]:
    """A plot with an identifier that no other of the page has."""
    key = hashlib.sha256(f"{at} {plot.name} {family}".encode()).hexdigest()[:10]
    return {"id": f"p{key}", "plot": plot, "figure": plot.figure}


def _counts(section: Section) -> str:
    told = [f"{sum(r.measurement.outcome == kind for r in section.trials)} {kind}" for kind in Outcome
            if any(r.measurement.outcome == kind for r in section.trials)]  # fmt: skip
    older = f"; {number(section.older, 'estimate')} of former models left out" if section.older else ""
    unbuilt = sum(record.measurement.outcome == Outcome.INFEASIBLE for record in section.trials)
    ruled_out = f", {unbuilt} of them ruled out by constraints" if unbuilt else ""
    return f"{number(len(section.trials), 'trial')}{ruled_out}: {', '.join(told)}{older}"


def _winner(part: Part) -> list[tuple[str, object]]:
    winner = part.section.winner
    if winner is None:
        return []
    timing, measurement = winner.measurement.timing, winner.measurement
    pairs: list[tuple[str, object]] = [("family", winner.candidate.template)]
    pairs.append(("configuration", format_config(winner.candidate.config)))
    if timing is not None:
        repeats = f", {timing.repeats} times" if timing.repeats else ""
        pairs.append(("time", f"{format_ms(timing.median_ms)} ms {timing.label} ({timing.method}{repeats})"))
        if timing.q3_ms > timing.q1_ms:
            pairs.append(("quartiles", f"{format_ms(timing.q1_ms)} to {format_ms(timing.q3_ms)} ms"))
    pairs += [("energy", energy_words(measurement.energy))] if measurement.energy is not None else []
    rate = _rate(part.section, measurement.ms)
    pairs += [("rate", f"{rate} TFLOP/s{', estimated' if part.section.estimated else ''}")] if rate else []
    pairs += [("verified", text) for text in [_verified(measurement)] if text]
    pairs += [("source", winner.source_hash), ("record", winner.id), *sorted(measurement.environment.items())]
    return pairs


def _verified(measurement: Measurement) -> str:
    found = measurement.verification
    if found is None:
        return ""
    said = ", ".join(f"{c.name} off by {c.max_abs_error:.2g} of {c.bound:.2g} allowed" for c in found.checks)
    return f"{said} ({found.units_checked} of {found.units_total} parts, on {found.problem})"


def _kernels(section: Section) -> Table:
    """What ptxas said of the winner's kernels."""
    found = () if section.winner is None else section.winner.measurement.resources
    rows = [
        (k.kernel, k.registers, k.spill_bytes, k.static_smem, k.dynamic_smem, k.threads, f"{k.occupancy:.0%}")
        for k in found
    ]
    columns = ("kernel", ">registers", ">spills B", ">static smem B", ">dynamic smem B", ">threads", ">occupancy")
    return Table(columns, rows)


def _searches(section: Section) -> Table:
    rows, now = [], datetime.now(UTC).timestamp()
    for search in section.searches:
        state = f"{search.state} {search.unheard(now)}".strip()
        made = [record for record in section.trials if record.search_id == search.id]
        times = [(r.measurement.ms or 0.0, at) for at, r in enumerate(made, 1) if counts(r)]
        best = min(times, default=None)
        rows.append((
            search.id, search.settings.get("sampler", ""), search.settings.get("seed", ""), state, len(made),
            "" if best is None else format_ms(best[0]), "" if best is None else best[1],
            search.created_at.isoformat(sep=" ", timespec="seconds"),
        ))  # fmt: skip
    time = ">best est. ms" if section.estimated else ">best ms"
    return Table((">search", "sampler", ">seed", "state", ">trials", time, ">at trial", "begun"), rows)


def _failures(section: Section) -> Table:
    """The first of each kind in each family: what the compiler, the device, the reference or the checker said."""
    found: dict[tuple[str, str], list[StoredMeasurement]] = {}
    for record in section.trials:
        if record.measurement.message and record.measurement.outcome != Outcome.OK:
            found.setdefault((record.measurement.outcome.value, record.candidate.template), []).append(record)
    rows = [
        (outcome, family, len(records), records[0].id, " ".join(records[0].measurement.message.split())[:400])
        for (outcome, family), records in sorted(found.items())
    ]
    return Table(("outcome", "family", ">times", ">record", "the first one's message"), rows)


def _checker(examined: Examined) -> dict[str, Any]:
    checked = examined.checked
    if checked is None:
        return {"why": examined.why}
    estimated = checked.estimated
    return {
        "why": "", "verdict": checks.verdict(checked), "ok": checked.ok, "sampling": checks.sampling(checked),
        "memory": checks.compulsory(checked), "findings": [str(finding) for finding in checked.findings],
        "hints": [str(hint) for hint in checked.hints], "executed": str(checked.problem),
        "kernels": Table(checks.KERNEL_COLUMNS, list(checks.kernel_rows(checked))),
        "headline": headline(estimated) if estimated else "", "no_estimate": checked.no_estimate,
        "launches": Table(LAUNCH_COLUMNS, list(launch_rows(estimated))) if estimated else None,
        "lines": list(_checker_lines(checked)),
    }  # fmt: skip


def _checker_lines(checked: Any) -> Iterator[tuple[str, Table]]:
    source = checked.source.code.splitlines() if checked.source else []
    for kernel in checked.trace.kernels:
        yield kernel.kernel, Table(checks.LINE_COLUMNS, list(checks.line_rows(kernel, source, checked.lines)))


def _peers(rows: list[PeerRow], section: Section | None, at: int = 0) -> list[dict[str, Any]]:
    """A table and a plot for each problem that rows tell of."""
    groups: dict[str, list[PeerRow]] = {}
    for row in rows:
        groups.setdefault("" if section is not None else row.about, []).append(row)
    found = []
    for about, group in groups.items():
        plot = peer_plot(group, section)
        found.append({
            "about": about, "table": Table(PEER_COLUMNS, peer_table(group)),
            "plot": None if plot is None else _drawn(at, plot, about),
        })  # fmt: skip
    return found


def _profile(profile: Profile) -> dict[str, Any]:
    names = list(dict.fromkeys(name for kernel in profile.kernels for name in kernel.figures()))
    figures = [(kernel.name, *(str(kernel.figures().get(name, "")) for name in names)) for kernel in profile.kernels]
    every = [
        (kernel.name, name, str(metric))
        for kernel in profile.kernels
        for name, metric in sorted(kernel.metrics.items())
    ]
    return {
        "about": _said_of(profile.about), "figures": Table(("kernel", *(f">{name}" for name in names)), figures),
        "every": Table(("kernel", "metric", ">value"), every),
    }  # fmt: skip


def _said_of(about: Mapping[str, Any]) -> str:
    return " ".join(str(about[name]) for name in ("candidate", "problem", "device") if about.get(name))


Say = Callable[[str], None]
