"""What a candidate must pass before it is named the winner: another problem, and the checker. On the emulator, seconds.

The problem that was searched has one shape. The other one has lengths beside the edges of tiles, more keys than queries
and more queries than keys, more of both than a ring of tiles holds, and fewer key heads than query heads; its tensors
lie once more as vectors do not allow, and once more than 2^31 elements apart; and races show in the checker alone when
they happened to give the right numbers. Verification on a GPU and the estimate's traced run have seen nothing of this.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.pool import BuildPool
from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError, BuildError, CompileError, LaunchError, TemplateError
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.client import WorkerClient, WorkerDied, WorkerTimeout
from autotune.devices.factory import CpuOpener
from autotune.devices.messages import Evaluate, Evaluated, Prepare
from autotune.devices.twin import GAPS, MISALIGNED, ODD, Placement, odd_ones
from autotune.emulator.building import EmulatorRequest, build_emulator
from autotune.families.op_ref import OpRef
from autotune.families.space import Space
from autotune.families.traits import traits_of
from autotune.ops.awkward import second_problems
from autotune.trace.remote import TracerKilled, TracerTimeout, TracingProcess
from autotune.trace.task import TraceTask
from autotune.tuning.evaluation import Task

LIMIT_S = 120.0
"""What one run may take: it takes a second where nothing else uses the machine."""

_PROBLEMS = 4
_FAR = (0, 2)  # problems of many rows, and of two: then a stride itself exceeds 2^31

_PASSED: set[Hashable] = set()


class Examiner:
    """Examines candidates one after the other; processes start when first needed.

    `skipped` tells why an examination could not be made, or was made in part; empty when all was. What passed in full
    is not examined again by this process: problems of other lengths have the same second problems.
    """

    def __init__(self, task: Task, cache: BuildCache, builds: int = 2) -> None:
        """`builds`: at a time, of what is expected."""
        self._task, self._cache = task, cache
        self._client = WorkerClient(CpuOpener(task.identity.spec))
        self._tracer = TracingProcess(LIMIT_S)
        self._ahead = BuildPool(cache, builds)
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="examiner")
        self._started: Future[None] | None = None  # of the processes
        self.expected: dict[Candidate, list[Future[Artifact]]] = {}  # builds that `expect` began
        self.skipped = ""

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Begin what the examinations of these need, which takes longer than the rest: builds, and the processes.

        What was expected before and has not begun is dropped.
        """
        if self._started is None:
            self._started = self._aside.submit(self._start)
        for gone in self.expected.keys() - set(candidates):
            for build in self.expected.pop(gone):
                build.cancel()
        for candidate in candidates:
            if candidate not in self.expected:
                self._build_ahead(candidate)

    def _start(self) -> None:
        with suppress(AutotuneError, WorkerTimeout, WorkerDied):  # who needs them tries again, and says so
            self._tracer.start()
            self._client.start()

    def _build_ahead(self, candidate: Candidate) -> None:
        builds = self.expected[candidate] = []
        problem = next(self._problems(candidate), self._task.reduced)
        with suppress(TemplateError):
            source = self._task.render(candidate, problem)
            for request in (
                EmulatorRequest(source),
                EmulatorRequest(source, traced=True, arch=self._task.identity.spec.arch),
            ):
                build = self._ahead.submit(request)
                build.add_done_callback(self._give_back)
                builds.append(build)

    def _give_back(self, build: Future[Artifact]) -> None:
        if not build.cancelled() and build.exception() is None:
            self._cache.give_back(build.result())

    def complaint(self, candidate: Candidate) -> str:
        """What is wrong with a candidate that is right on the problem searched; empty if nothing was found."""
        self.skipped = ""
        problems = tuple(islice(self._problems(candidate), _PROBLEMS))
        if not problems:
            self.skipped = "no second problem is known that it computes"
        examined = (
            self._task.op_source,
            candidate,
            problems or (self._task.reduced,),
            self._task.identity,
            self._task.seed,
        )
        if examined in _PASSED:
            return ""
        try:
            wrong = self._examine(candidate, problems)
            if not wrong and not self.skipped:
                _PASSED.add(examined)
            return wrong
        except (BuildError, CompileError, TemplateError, TracerKilled, TracerTimeout) as error:
            self.skipped, _, _ = str(error).partition("\n")
            return ""

    def close(self) -> None:
        """End the processes, and drop what was expected."""
        self._ahead.close()
        self._client.kill(for_good=True)  # another thread may be starting them
        self._tracer.stop()
        self._aside.shutdown(wait=True)
        self._client.close()
        self._tracer.close()

    def _examine(self, candidate: Candidate, problems: tuple[Problem, ...]) -> str:
        """Both parts at once, since each spends most of its time in a compiler."""
        if self._started is not None:
            self._started.result()
        with ThreadPoolExecutor(1) as beside:
            checked = beside.submit(self._check, candidate, problems[0] if problems else self._task.reduced)
            for place, problem in enumerate(problems):
                wrong = self._verify(candidate, problem, place)
                if wrong:
                    return f"{wrong} (on {problem})"
            return checked.result()

    def _problems(self, candidate: Candidate) -> Iterator[Problem]:
        """Those that the family computes with this configuration."""
        template, spec = self._task.templates[candidate.template], self._task.identity.spec
        for problem in second_problems(
            self._task.op, self._task.problem, in_flight(self._task.op.name, candidate.config)
        ):
            fits = template.why_unsupported(problem, spec) is None
            if fits and Space(template, problem, spec).why_not(candidate.config, called=True) is None:
                yield problem

    def _verify(self, candidate: Candidate, problem: Problem, place: int) -> str:
        source = self._task.render(candidate, problem)
        artifact = build_emulator(source, self._cache)
        # Each problem has another seed: what is NaN, and where, follows from it.
        self._client.prepare(Prepare(self._task.op_source, problem, self._task.seed + place))
        template, spec = self._task.templates[candidate.template], self._task.identity.spec
        deterministic = traits_of(template, problem, candidate.config, spec).deterministic
        evaluate = Evaluate(artifact, source.plan, None, deterministic, placements_of(place), far=place in _FAR)
        try:
            reply = self._client.ask(evaluate, LIMIT_S)
        except (WorkerTimeout, WorkerDied):  # as the machine may have had it
            try:
                reply = self._client.ask(evaluate, LIMIT_S)
            except (WorkerTimeout, WorkerDied) as error:
                return f"{error}, twice"
        assert isinstance(reply, Evaluated)
        return "" if reply.verdict.outcome is Outcome.OK else reply.verdict.message

    def _check(self, candidate: Candidate, problem: Problem) -> str:
        """The first finding of traced runs: as tensors lie, and misaligned for vectors."""
        if not isinstance(self._task.op_source, OpRef):
            self.skipped = "no other process can resolve the op"
            return ""
        path = self._task.templates[candidate.template].path.resolve()
        task = TraceTask(self._task.op_source, path, problem, candidate.values, self._task.identity.spec, hard=True)
        for placement in (None, *MISALIGNED) if problem != self._task.reduced else (None,):
            try:
                trace = self._tracer.trace(replace(task, placement=placement)).trace
            except (TracerKilled, TracerTimeout):  # no verdict: its kernels ended where they were timed
                raise
            except LaunchError as error:
                return str(error)
            if trace.findings:
                return f"{trace.findings[0]} (on {problem})"
        return ""


def in_flight(op: str, config: Mapping[str, Value]) -> Mapping[str, int]:
    """One more key, query or summand than all stages of a candidate's ring of tiles hold, by the name of the length.

    By the names that families give their parameters; the queries of a forward pass are no stream. Split keys are as
    many as give every split a tile. Of the rows and columns of a product a tile and a part of another: there are paths
    for whole tiles alone.
    """
    rings = (value for name, value in config.items() if name.endswith("STAGES") or name == "SPLIT")
    stages = max([1, *(value for value in rings if isinstance(value, int))])
    streams = {"T_kv": "BLOCK_N", "K": "BLOCK_K"} | ({"T": "BLOCK_M"} if op == "backward" else {})
    tiles = {length: config.get(name) for length, name in streams.items()}
    longer = {length: stages * tile + 1 for length, tile in tiles.items() if isinstance(tile, int)}
    for length, name, part in (("M", "BLOCK_M", 9), ("N", "BLOCK_N", 8)):
        tile = config.get(name)
        if op == "matmul" and isinstance(tile, int):
            longer[length] = tile + part
    return longer


def placements_of(place: int) -> tuple[Placement, ...]:
    """How tensors lie in the runs over the `place`-th problem.

    On the first two one tensor after the other forbids vectors while all others allow them, on the others all do.
    """
    return (GAPS, *odd_ones(1 + place, 2, place)) if place < 2 else (GAPS, replace(ODD, turn=place))


def nothing_expected(candidates: Sequence[Candidate]) -> None:
    """For searches that have no core to spare, or build what is needed anyway."""


def nothing_wrong(candidate: Candidate) -> str:  # noqa: ARG001 - an examination that is not made
    """For evaluators that execute nothing."""
    return ""
