"""Builds ahead of a climb: its searches come one after the other, and each would wait for its first compilers."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.gpus.spec import DeviceSpec
from autotune.tuning.choose import Subject, choose_families
from autotune.tuning.search_options import Options
from autotune.tuning.session import STARTUP

Searches = Sequence[tuple[Subject, Problem]]


@contextmanager
def warm(searches: Searches, spec: DeviceSpec, options: Options) -> Iterator[None]:
    """Fill the build cache, in the background, with the first candidates that searches ask for; stop at the end.

    Which ones those are is guessed as the engine chooses them: defaults, then random ones by the seed. A wrong guess
    costs a build.
    """
    stop = threading.Event()
    with BuildPool(BuildCache(), options.jobs) as pool:
        thread = threading.Thread(target=_submit, args=(searches, spec, options, pool, stop), name="warm", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def first_candidates(subject: Subject, problem: Problem, spec: DeviceSpec, options: Options) -> list[Candidate]:
    """What a new search evaluates before it has learnt anything.

    Raises:
        NoFeasibleConfiguration: no family supports the problem.
    """
    families = choose_families(subject.templates, problem, spec)
    count = min(options.trials or STARTUP, STARTUP)
    chosen = list(families.starts())[:count]
    rng = np.random.default_rng(options.seed)
    while len(chosen) < count:
        candidate = families.unseen(rng, set(chosen).__contains__)
        if candidate is None:
            break
        chosen.append(candidate)
    return chosen


def _submit(searches: Searches, spec: DeviceSpec, options: Options, pool: BuildPool, stop: threading.Event) -> None:
    for subject, problem in searches:
        templates = {template.name: template for template in subject.templates}
        try:
            for candidate in first_candidates(subject, problem, spec, options):
                if stop.is_set():
                    return
                source = render(templates[candidate.template], problem, candidate.config, spec)
                pool.submit(CubinRequest(source, spec.arch))
        except AutotuneError:
            continue  # the search itself meets the same error, and says so
