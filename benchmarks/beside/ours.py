"""autotune over the same kernels: the pipeline of a search, without a sampler, a database and an examination."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.factory import DeviceOpener
from autotune.tuning.beginning import begin
from autotune.tuning.choose import Subject
from autotune.tuning.search_options import Options
from autotune.tuning.timeline import Event


@dataclass(frozen=True)
class Evaluated:
    """What became of each candidate, and the seconds until the last verdict, opening the device included."""

    found: dict[Candidate, Measurement]
    seconds: float
    timeline: Mapping[Event, float]


def run(
    subject: Subject, problem: Problem, opener: DeviceOpener, candidates: Sequence[Candidate], *, jobs: int | None,
    limit_s: float,
) -> Evaluated:  # fmt: skip
    """Build, verify and time candidates in their order.

    Args:
        subject: the families of the candidates; `problem`: what is computed; `opener`: on which device.
        candidates: each once.
        jobs: builds at a time; None: one a core.
        limit_s: seconds that one may take.

    Raises:
        AutotuneError: the machinery failed.
    """
    start = time.monotonic()
    options = Options(sampler="random", jobs=jobs, limit_s=limit_s)
    waiting, found = deque(candidates), dict[Candidate, Measurement]()
    with closing(begin(subject, problem, opener, options, start=start)) as begun:
        pipeline = begun.pipeline
        while len(found) < len(candidates):
            while waiting and len(candidates) - len(waiting) - len(found) < pipeline.capacity:
                pipeline.submit(waiting.popleft())
            for finished in pipeline.poll(0.5):
                found[finished.candidate] = finished.measurement
                timing = finished.measurement.timing
                if finished.measurement.outcome is Outcome.OK and timing is not None:
                    pipeline.note_best(timing.median_ms)
        return Evaluated(found, time.monotonic() - start, begun.timeline.seconds())


def let_through(measurement: Measurement) -> bool:
    """Whether a wrong kernel would be taken for a right one."""
    return measurement.outcome in (Outcome.OK, Outcome.PRUNED) and measurement.verification is not None
