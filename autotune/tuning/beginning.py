"""What a search begins before anything else: the device's process, the references, and builds of the families' starts.

All of it takes seconds on cores that have nothing else to do, while the database is opened and spaces are counted.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from autotune.compilers.cache import BuildCache
from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError
from autotune.core.problem import Problem
from autotune.devices.client import WorkerClient
from autotune.devices.factory import DeviceOpener
from autotune.devices.messages import Opened
from autotune.families.space import Space
from autotune.tuning.choose import Subject
from autotune.tuning.evaluation import Task
from autotune.tuning.pipeline import Pipeline
from autotune.tuning.search_options import Options
from autotune.tuning.timeline import Timeline


@dataclass(frozen=True)
class Begun:
    """A search whose device is being opened and whose first builds run. `close` ends both."""

    start: float  # of `time.monotonic`
    client: WorkerClient
    opened: Opened
    task: Task
    cache: BuildCache
    timeline: Timeline
    pipeline: Pipeline

    def close(self) -> None:
        """Stop builds and worker."""
        self.pipeline.close()
        self.client.close()


def begin(
    subject: Subject, problem: Problem, opener: DeviceOpener, options: Options, *, start: float | None = None
) -> Begun:
    """Start a process that opens the device and makes the references, and build what will be asked first.

    `start`: when the search began, of `time.monotonic`; by default now.

    Raises:
        AutotuneError: the device cannot be opened.
    """
    client = WorkerClient(opener)
    try:
        return begin_with(client, subject, problem, options, time.monotonic() if start is None else start)
    except BaseException:
        client.close()
        raise


def begin_with(client: WorkerClient, subject: Subject, problem: Problem, options: Options, start: float) -> Begun:
    """`begin` with a worker that exists, which no other thread uses from now on. Raises as `begin`."""
    opened, cache, timeline = client.foreseen(), BuildCache(), Timeline(start)
    task = Task(
        subject.op, subject.source, problem, {template.name: template for template in subject.templates},
        opened.identity, opened.environment, options.seed, options.limit_s,
    )  # fmt: skip
    pipeline = Pipeline(task, client, cache, options.jobs, timeline, options.demand)
    if options.learns and not options.quick:
        with suppress(AutotuneError):  # the search itself will come to it, and say so
            for candidate in itertools.islice(_starts(subject, problem, opened), _builds(subject, options)):
                pipeline.expect(candidate)
    return Begun(start, client, opened, task, cache, timeline, pipeline)


def _builds(subject: Subject, options: Options) -> int:
    """One a core; of a few trials, those that are asked for sure: families without a valid start ask something else."""
    jobs = options.builds
    return jobs if options.trials is None else max(0, min(jobs, options.trials - len(subject.templates)))


def _starts(subject: Subject, problem: Problem, opened: Opened) -> Iterator[Candidate]:
    """The valid starts of all families, in turn, without counting spaces."""
    spec = opened.identity.spec
    supporting = (template for template in subject.templates if template.why_unsupported(problem, spec) is None)
    spaces = [Space(template, problem, spec) for template in supporting]
    known = (map(space.candidate, space.valid_starts()) for space in spaces)
    for turn in itertools.zip_longest(*known):
        yield from (candidate for candidate in turn if candidate is not None)
