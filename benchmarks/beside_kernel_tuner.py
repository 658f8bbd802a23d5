"""The same kernels through autotune and Kernel Tuner on one GPU: speed, wrong kernels let through, crashes survived.

    python -m benchmarks.beside_kernel_tuner --out beside --total 400

Random configurations of forward/flash_mma at the default problem, as far as Kernel Tuner can launch them; then the
default configuration with mistakes planted (`benchmarks.beside.kernels`). Both build with nvcc, by the same flags.
Needs a GPU, PyCUDA and Kernel Tuner (pip install kernel_tuner).
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path

from autotune.compilers.cache import write_source
from autotune.core.candidate import Candidate
from autotune.core.outcome import Outcome
from autotune.core.plan import Launch
from autotune.core.problem import Problem
from autotune.devices.factory import DeviceOpener, choose_device
from autotune.families.render import render
from autotune.families.source import NVCC_FLAGS
from autotune.families.template import SUFFIX, find_template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.expected import expect
from autotune.tuning.choose import Subject, choose_subject
from benchmarks.beside import ours, theirs
from benchmarks.beside.kernels import (
    CRASHES,
    FAMILY,
    MISTAKES,
    Kernel,
    Mistake,
    answers,
    candidates,
    host_arguments,
    plant,
    taken_apart,
)
from benchmarks.beside.report import Beside, Fate, Rate

MISSING = "Kernel Tuner is not installed here: pip install kernel_tuner pycuda"
_ATOLS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_CANDIDATE_S, _CRASH_S, _THEIR_START_S = 6.0, 40.0, 30.0
_SEED = 1
_AT_ONCE = 4  # planted mistakes


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of beside.md and beside.json")
    parser.add_argument("--total", type=float, default=400.0, help="seconds; a third of them are Kernel Tuner's, timed")
    parser.add_argument("--candidates", type=int, default=100, help="that both are given")
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--jobs", type=int, default=None, help="builds at a time [default: one a core]")
    parser.add_argument("--backend", default="PYCUDA", help="of Kernel Tuner: PYCUDA, CUPY or NVCUDA")
    options = parser.parse_args(arguments)
    if find_spec("kernel_tuner") is None:
        print(MISSING)
        return 4
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(choose_device("cuda"), options.T, options.jobs, Path(folder), options.backend)
        found = comparison.run(options.candidates, options.total)
    (options.out / "beside.json").write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    text = "\n".join(found.lines()) + "\n"
    (options.out / "beside.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


class Comparison:
    """One problem on one device; `folder` is for sources and templates, `backend` Kernel Tuner's."""

    def __init__(self, opener: DeviceOpener, T: int, jobs: int | None, folder: Path, backend: str = "PYCUDA") -> None:
        self.opener, self.jobs, self.folder, self.backend = opener, jobs, folder, backend
        self.subject = choose_subject("forward", [FAMILY])
        self.problem: Problem = self.subject.problem({"T": T})
        foreseen = opener.foresee()
        assert foreseen is not None
        self.spec: DeviceSpec = foreseen[0].spec
        self.expected = expect(self.subject.op, self.problem, 0)

    def run(self, count: int, total_s: float) -> Beside:
        """Both tuners over all kernels, within about so many seconds.

        Raises:
            AutotuneError: the machinery failed.
        """
        start = time.monotonic()
        asked = candidates(self.subject, self.problem, self.spec, count, _SEED)
        atol = self.least_atol(asked[0])
        mine = ours.run(self.subject, self.problem, self.opener, asked, jobs=self.jobs, limit_s=20.0)
        self._say(start, f"autotune: {len(mine.found)} candidates in {mine.seconds:.1f} s, {mine.timeline}")
        kernels = [self._kernel(self.subject, candidate, str(n)) for n, candidate in enumerate(asked)]
        job = self._job(kernels, atol)
        them = theirs.run(job, max(60.0, total_s / 3))
        self._say(start, f"Kernel Tuner: {them.done} candidates in {them.seconds:.1f} s {them.ending}")
        fates = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # nothing of these is timed
            for fate in pool.map(lambda mistake: self.fate(mistake, atol), (*MISTAKES, *CRASHES)):
                fates.append(fate)
                self._say(start, f"{fate.name}: {fate}")
        version = version_of("kernel_tuner")
        return Beside(
            str(self.problem), self.spec.title, version, self.backend, Rate(len(mine.found), mine.seconds),
            Rate(them.done, them.seconds), atol, tuple(fates),
        )  # fmt: skip

    def least_atol(self, candidate: Candidate) -> float:
        """The least power of ten at which Kernel Tuner takes the default configuration for right."""
        kernel = self._kernel(self.subject, candidate, "right")
        with ThreadPoolExecutor(len(_ATOLS)) as pool:
            all_ran = list(pool.map(lambda atol: theirs.run(self._job([kernel], atol), 60.0), _ATOLS))
        for atol, ran in zip(_ATOLS, all_ran, strict=True):
            if ran.times:
                return atol
        raise SystemExit(f"Kernel Tuner runs the right kernel at no tolerance: {all_ran[-1].ending}")

    def fate(self, mistake: Mistake, atol: float) -> Fate:
        """What becomes of a mistake: a wrong kernel alone, one that crashes between two that are right."""
        subject, candidate = self._planted(mistake)
        first = self._default(self.subject)
        if not mistake.crash:
            mine = ours.run(subject, self.problem, self.opener, [candidate], jobs=1, limit_s=20.0)
            them = theirs.run(self._job([self._kernel(subject, candidate, mistake.name)], atol), 60.0)
            measurement = mine.found[candidate]
            return Fate(
                mistake.name, mistake.what, False, not ours.let_through(measurement), mistake.name not in them.times,
                measurement.message, them.ending,
            )  # fmt: skip
        both = Subject(self.subject.op, self.subject.source, (*self.subject.templates, *subject.templates))
        others = candidates(self.subject, self.problem, self.spec, 2, _SEED)
        mine = ours.run(both, self.problem, self.opener, [first, candidate, others[1]], jobs=1, limit_s=_CANDIDATE_S)
        kernels = [self._kernel(self.subject, first, "before"), self._kernel(subject, candidate, mistake.name)]
        them = theirs.run(self._job([*kernels, self._kernel(self.subject, others[1], "after")], atol), _CRASH_S)
        survived = mine.found[others[1]].outcome in (Outcome.OK, Outcome.PRUNED)
        return Fate(
            mistake.name,
            mistake.what,
            True,
            survived,
            "after" in them.times,
            mine.found[candidate].message,
            them.ending,
        )

    def _planted(self, mistake: Mistake) -> tuple[Subject, Candidate]:
        template = plant(find_template("forward", FAMILY), mistake, self.folder)
        subject = choose_subject("forward", [str(self.folder / f"{template.name}{SUFFIX}")])
        return subject, self._default(subject)

    def _default(self, subject: Subject) -> Candidate:
        return candidates(subject, self.problem, self.spec, 1, _SEED)[0]

    def _kernel(self, subject: Subject, candidate: Candidate, name: str) -> Kernel:
        [template] = [t for t in subject.templates if t.name == candidate.template]
        source = render(template, self.problem, candidate.config, self.spec)
        include = self.folder / "include"
        write_source(source, include)
        return taken_apart(source, include, name)

    def _job(self, kernels: Sequence[Kernel], atol: float) -> theirs.Job:
        launch = self._launch(kernels)
        return theirs.Job(
            tuple(kernels), tuple(host_arguments(launch, self.expected)),
            tuple(answers(self.subject.op, launch, self.expected)), atol, NVCC_FLAGS, self.backend,
        )  # fmt: skip

    def _launch(self, kernels: Sequence[Kernel]) -> Launch:
        """Arguments are the same for all: tensors, lengths and heads do not depend on the configuration."""
        source = render(self.subject.templates[0], self.problem, self._default(self.subject).config, self.spec)
        [launch] = source.plan.launches
        assert {kernel.kernel for kernel in kernels} == {launch.kernel}
        return launch

    @staticmethod
    def _say(start: float, text: str, show: Callable[[str], None] = print) -> None:
        show(f"{time.monotonic() - start:6.1f} s  {text}")


if __name__ == "__main__":
    raise SystemExit(main())
