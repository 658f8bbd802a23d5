"""The roofline of a section: what the GPU can do at most, and where the candidates are.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52(4), 2009.
"""

from collections.abc import Mapping
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.words import format_ms
from autotune.estimate.model import Estimate
from autotune.report.page.plots import LOG, Plot, axis, marker_of, shown
from autotune.report.page.sections import Section

_BEYOND = 6.0  # how far the axes go past what is on them


def roofline(section: Section, examined: Mapping[Candidate, Estimate]) -> Plot | str:
    """The plot, or why there is none.

    Each right trial stands at the problem's own intensity: operations by the field's convention over compulsory bytes,
    which are the same for all. Candidates in `examined` stand also where their counted operations and modelled bytes
    of device memory put them.
    """
    if section.op is None:
        return f"nothing is known of the op {section.problem.op} here: name its template with --template"
    flops, nbytes, spec = section.op.flops(section.problem), section.op.nbytes(section.problem), section.identity.spec
    if not flops or not nbytes:
        return f"{section.problem.op} computes nothing: it moves {nbytes / 1e6:.4g} MB, whose bound is bandwidth alone"
    bandwidth = spec.bandwidth_gbs / 1e3  # TB/s: TFLOP/s for each operation a byte
    data: list[dict[str, Any]] = []
    for place, family in enumerate(section.families):
        points = [(flops / (r.measurement.ms * 1e9), r) for r in section.timed
                  if r.candidate.template == family and r.measurement.ms]  # fmt: skip
        if points:
            data.append({
                "type": "scatter", "mode": "markers", "name": shown(family), "x": [flops / nbytes] * len(points),
                "y": [rate for rate, _ in points], "hoverinfo": "text",
                "text": [f"{shown(family)}, record {r.id}: {rate:.4g} TFLOP/s, {format_ms(r.measurement.ms)} ms"
                         for rate, r in points],
                "marker": marker_of(place) | {"opacity": 0.7},
            })  # fmt: skip
    data += _examined(section, examined)
    xs = [x for trace in data for x in trace["x"]]
    peaks = {"tensor cores, 16 bits": spec.tensor_tflops, "fp32": spec.fp32_tflops}
    ridges = [peak / bandwidth for peak in peaks.values() if peak]
    ridge = max(ridges)
    left, right = min([*xs, *ridges]) / _BEYOND, max([*xs, *ridges]) * _BEYOND
    roofs: list[dict[str, Any]] = []
    for (name, peak), dash in zip(peaks.items(), ("solid", "dash"), strict=True):
        if peak:
            roofs.append(_line(f"{name}: {peak:g} TFLOP/s", [peak / bandwidth, right], [peak, peak], dash))
    roofs.insert(
        0, _line(f"memory: {spec.bandwidth_gbs:g} GB/s", [left, ridge], [left * bandwidth, ridge * bandwidth], "solid")
    )
    layout = {
        "xaxis": axis("operations a byte of device memory (log)", type="log", nticks=6, **LOG),
        "yaxis": axis(f"{'estimated ' if section.estimated else ''}TFLOP/s (log)", type="log", nticks=6, **LOG),
    }  # fmt: skip
    said = (
        f"{flops / 1e9:.4g} Gflop by the field's convention, {nbytes / 1e6:.4g} MB compulsory. Peaks are the published "
        f"ones of {spec.title}."
    )
    if examined:
        said += " Hollow marks: operations counted on the emulator, bytes of device memory by the model (estimates)."
    height = 380 + 18 * (len(roofs) + len(data))
    return Plot("roofline", "Roofline", [*roofs, *data], layout, section.estimated, said, height)


def _examined(section: Section, examined: Mapping[Candidate, Estimate]) -> list[dict[str, Any]]:
    fastest = {r.candidate: r for r in sorted(section.timed, key=lambda r: -(r.measurement.ms or 0.0))}
    data = []
    for candidate, estimate in examined.items():
        record = fastest.get(candidate)
        if record is None or not record.measurement.ms or candidate.template not in section.families:
            continue
        rate = sum(launch.flops for launch in estimate.launches) / (record.measurement.ms * 1e9)
        if rate <= 0.0 or estimate.intensity <= 0.0:
            continue
        marker = marker_of(section.families.index(candidate.template))
        data.append({
            "type": "scatter", "mode": "markers", "name": f"{shown(candidate.template)}, work counted (est.)",
            "x": [estimate.intensity], "y": [rate], "hoverinfo": "text",
            "text": [f"{shown(candidate.template)}, record {record.id}, counted work, modelled bytes (estimates):<br>"
                     f"{rate:.4g} TFLOP/s at {estimate.intensity:.3g} operations a byte; {estimate.bound}-bound"],
            "marker": marker | {"symbol": f"{marker['symbol']}-open", "size": 12, "line": {"width": 2}},
        })  # fmt: skip
    return data


def _line(name: str, xs: list[float], ys: list[float], dash: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": xs, "y": ys, "hoverinfo": "name",
        "line": {"color": "#1b1b1b", "width": 1.5, "dash": dash},
    }  # fmt: skip
