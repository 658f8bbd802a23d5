"""How replayed searches compare, as rows, data and a picture."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from autotune.tuning.replayed import Course


UNITS = {"time": "ms", "energy": "mJ", "edp": "mJ ms"}
"""Of what is minimised."""

_KEYS = {"time": "optimum_ms", "energy": "optimum_mj", "edp": "optimum_mj_ms"}


@dataclass(frozen=True)
class Compared:
    """Searches of one recording that differ in their seeds: best over the optimum after each evaluation.

    `optimum`: in what `UNITS` says of the objective.
    """

    file: str
    optimum: float
    sampler: str
    in_flight: int
    courses: "Sequence[Course]"
    objective: str = "time"

    def quantile(self, share: float, trials: int) -> float:
        """Of the seeds' bests after so many evaluations (after all, where a search ended before): interpolated."""
        found = sorted(_after(course, trials) for course in self.courses)
        place = share * (len(found) - 1)
        low, high = found[math.floor(place)], found[math.ceil(place)]
        return low if low == high else low + (place - math.floor(place)) * (high - low)

    @property
    def built(self) -> float:
        """Candidates that were built: the mean of the seeds."""
        return sum(course.built for course in self.courses) / len(self.courses)

    @property
    def time(self) -> float:
        """What a search would take, in measurements: the mean of the seeds."""
        return sum(course.time for course in self.courses) / len(self.courses)


def row(compared: Compared, marks: Iterable[int]) -> list[str]:
    """A row: recording, its optimum, sampler, candidates in flight, a cell for each mark, what was built, the time."""
    cells = (_cell(compared.quantile(0.5, mark), compared.quantile(0.9, mark)) for mark in marks)
    name = Path(compared.file).name.removesuffix(".gz").removesuffix(".json")
    return [name, f"{compared.optimum:.4g}", compared.sampler, str(compared.in_flight), *cells, *_effort([compared])]


def mean_rows(compared: Sequence[Compared], marks: Sequence[int]) -> list[list[str]]:
    """For each sampler and number in flight the geometric means over the recordings."""
    rows = []
    for sampler, in_flight in dict.fromkeys((c.sampler, c.in_flight) for c in compared):
        same = [c for c in compared if (c.sampler, c.in_flight) == (sampler, in_flight)]
        cells = [_cell(_mean(c.quantile(0.5, m) for c in same), _mean(c.quantile(0.9, m) for c in same)) for m in marks]
        rows.append(["geometric mean", "", sampler, str(in_flight), *cells, *_effort(same)])
    return rows


def as_data(compared: Iterable[Compared], marks: Sequence[int]) -> list[dict[str, Any]]:
    """The same for programs, with every seed's best at every mark."""
    return [
        {
            "file": c.file, _KEYS[c.objective]: c.optimum, "sampler": c.sampler, "in_flight": c.in_flight,
            "built": c.built, "time": c.time,
            "after": [
                {
                    "trials": mark, "median": c.quantile(0.5, mark), "p90": c.quantile(0.9, mark),
                    "seeds": [_after(course, mark) for course in c.courses],
                }
                for mark in marks
            ],
        }
        for c in compared
    ]  # fmt: skip


def draw(compared: Sequence[Compared]) -> "Figure":
    """For each recording best so far over optimum against evaluations: the median, shaded to the 90th percentile."""
    from matplotlib.figure import Figure

    files = list(dict.fromkeys(c.file for c in compared))
    figure = Figure(figsize=(5.0 * len(files), 4.2), layout="constrained")
    for axes, file in zip(figure.subplots(1, len(files), squeeze=False)[0], files, strict=True):
        for c in (c for c in compared if c.file == file):
            steps = range(1, max((len(course.steps) for course in c.courses), default=0) + 1)
            medians = [c.quantile(0.5, step) for step in steps]
            [line] = axes.plot(steps, medians, label=f"{c.sampler}, {c.in_flight} in flight")
            axes.fill_between(
                steps, medians, [c.quantile(0.9, step) for step in steps], color=line.get_color(), alpha=0.2
            )
        axes.set(title=row(compared[0], ())[0] if len(files) == 1 else Path(file).name, xlabel="evaluations")
        axes.set_ylabel("best so far / optimum: median to 90th percentile")
        axes.set_ylim(1.0, 2.0)
        axes.legend(frameon=False)
    return figure


def _after(course: "Course", trials: int) -> float:
    """The best after so many evaluations; after all, where a search ended before."""
    return course.steps[min(trials, len(course.steps)) - 1] if course.steps else math.inf


def _effort(compared: Sequence[Compared]) -> list[str]:
    return [f"{_mean(c.built for c in compared):.0f}", f"{_mean(c.time for c in compared):.0f}"]


def _mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms))


def _cell(median: float, p90: float) -> str:
    return f"{median:.3f} / {p90:.3f}"
