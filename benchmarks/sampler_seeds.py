"""Samplers on recorded spaces by seeds: some to develop with, others to judge by, in parallel processes.

    python -m benchmarks.sampler_seeds SPACES/*.json.gz --seeds 0-19 --trials 100 --in-flight 1
    python -m benchmarks.sampler_seeds SPACES/*.json.gz --seeds 100-139 --trials 100,200,400 --in-flight 1,4,20,64

Constants are chosen with seeds 0 to 19; seeds 100 to 139 are looked at once, with what is to be landed. Cells are
those of `autotune replay`, with the geometric mean over seeds in parentheses: of few seeds it says more than a median.
"""

import argparse
import itertools
import math
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from autotune.devices.recorded import RecordedSpace
from autotune.report.replays import Compared
from autotune.tuning.replayed import Course, course


def played(file: Path, sampler: str, in_flight: int, trials: int, seed: int) -> Course:
    """One search of one recording."""
    return course(_recording(file), sampler, trials, seed, in_flight)


@cache
def _recording(file: Path) -> RecordedSpace:
    return RecordedSpace.load(file)


def cell(compared: Sequence[Compared], trials: int) -> str:
    """Median / 90th percentile (mean) after so many evaluations: geometric means over the recordings."""
    means = [statistics.fmean(math.log(c.steps[min(trials, len(c.steps)) - 1]) for c in x.courses) for x in compared]
    quantiles = (statistics.geometric_mean(x.quantile(share, trials) for x in compared) for share in (0.5, 0.9))
    return " / ".join(f"{quantile:.3f}" for quantile in quantiles) + f" ({math.exp(statistics.fmean(means)):.3f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Play all and print, a line for each recording and then their geometric means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--sampler", default="parzen")
    parser.add_argument("--seeds", default="0-19", help="first and last")
    parser.add_argument("--trials", default="100")
    parser.add_argument("--in-flight", default="1")
    parser.add_argument("--jobs", type=int, default=None, help="processes [default: as many as there are cores]")
    options = parser.parse_args(arguments)
    first, last = map(int, options.seeds.split("-"))
    marks = [int(mark) for mark in options.trials.split(",")]
    kinds = list(itertools.product(map(int, options.in_flight.split(",")), options.files))
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {
            kind: [
                pool.submit(played, kind[1], options.sampler, kind[0], max(marks), seed)
                for seed in range(first, last + 1)
            ]
            for kind in kinds
        }
        for in_flight, group in itertools.groupby(kinds, key=lambda kind: kind[0]):
            every = []
            for _, file in group:
                courses = [future.result() for future in running[in_flight, file]]
                every.append(Compared(file.name, _recording(file).best_ms, options.sampler, in_flight, courses))
                _print(file.name, in_flight, every[-1:], marks)
            _print("geometric mean", in_flight, every, marks)


def _print(name: str, in_flight: int, compared: Sequence[Compared], marks: Sequence[int]) -> None:
    print(f"{name:28} {in_flight:3}", *(cell(compared, mark) for mark in marks), sep="  ", flush=True)


if __name__ == "__main__":
    main()
