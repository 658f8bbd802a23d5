"""One problem for all contenders: each is called, compared with float64, and timed in turn with the others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.bench.contender import OURS, Call, Contender
from autotune.bench.measured import Became, Entry, Error, Row, complaint
from autotune.bench.rounds import Timed, interleaved
from autotune.core.measurement import Timing
from autotune.core.problem import Problem
from autotune.devices.protocol import TimingBudget

BUDGET = TimingBudget(min_repeats=3, max_repeats=30, max_seconds=0.06, warmup=1)
"""A round of one call: many repeats of short ones, three of long ones."""

HOPELESS = 10.0
"""Who took this many times the fastest one's time is timed in the first round alone."""

ROUNDS = 5
_MOST_CALLS, _LEAST_CALLS = 20, 3
_QUEUED_MS = 100.0  # of work that is queued at most while the host's time of a call is taken
_REASON = 160  # characters of what a contender said that are kept


class Judge(Protocol):
    """Knows the exact values of a problem, of `checked` of its `slices`."""

    @property
    def checked(self) -> int:
        """How many slices there are exact values of."""

    @property
    def slices(self) -> int:
        """How many there are in all."""

    def errors(self, outputs: Mapping[str, Any]) -> dict[str, Error]:
        """Of each output by name."""


class Lab(Protocol):
    """Where contenders are called: tensors, exact values and clocks."""

    def environment(self) -> Mapping[str, str]:
        """Device, driver and host."""

    def tensors(self, problem: Problem) -> Any:
        """New inputs, the same ones for all contenders."""

    def judge(self, problem: Problem, tensors: Any) -> Judge:
        """The exact values."""

    def kernel(self, call: Call, budget: TimingBudget) -> Timing:
        """The GPU's time of a call, caches emptied before each."""

    def call_us(self, call: Call, count: int) -> float:
        """Microseconds of the host's for each of `count` calls that are queued without waiting for the GPU."""

    def wait(self) -> None:
        """Until the GPU has done everything; raises what went wrong there."""

    def emptied(self) -> AbstractContextManager[None]:
        """Memory that was used within the block is given back at its end."""


@dataclass(frozen=True)
class _Running:
    """A contender that gave results."""

    contender: Contender
    call: Call
    errors: Mapping[str, Error]


def compare(problem: Problem, contenders: Sequence[Contender], lab: Lab, rounds: int = ROUNDS) -> Row:
    """All contenders on one problem; what one of them raises becomes its reason, and disturbs no other.

    Raises:
        Exception: of the lab: no memory for the inputs, or for their exact results.
    """
    with lab.emptied():  # around a call, so that nothing is held any more when it ends
        return _compared(problem, contenders, lab, rounds)


def _compared(problem: Problem, contenders: Sequence[Contender], lab: Lab, rounds: int) -> Row:
    tensors = lab.tensors(problem)
    judge = lab.judge(problem, tensors)
    absent: dict[str, Entry] = {}
    running: dict[str, _Running] = {}
    for contender in contenders:
        found = _begun(contender, problem, tensors, lab, judge)
        if isinstance(found, Entry):
            absent[contender.name] = found
        else:
            running[contender.name] = found
    failed: dict[str, str] = {}

    def measure(name: str) -> Timed | None:
        one = running[name]
        try:
            with one.contender.within():
                return timed(lab, one.call)
        except Exception as error:  # noqa: BLE001 - others' code: whatever it raises is about itself
            failed[name] = reason_of(error)
            return None

    times = interleaved(list(running), measure, rounds, HOPELESS, (OURS,))
    entries = [
        absent.get(contender.name)
        or _ended(running[contender.name], problem, times.get(contender.name, ()), failed.get(contender.name))
        for contender in contenders
    ]
    return Row(problem, tuple(entries), judge.checked, judge.slices)


def timed(lab: Lab, call: Call) -> Timed:
    """One round: the GPU's time, then the host's, with no more calls queued than keep the GPU busy for a moment."""
    kernel = lab.kernel(call, BUDGET)
    count = min(_MOST_CALLS, max(_LEAST_CALLS, int(_QUEUED_MS / kernel.median_ms)))
    return Timed(kernel, lab.call_us(call, count))


def compare_all(
    problems: Iterable[Problem], contenders: Sequence[Contender], lab: Lab, rounds: int, listen: Callable[[Row], None]
) -> list[Row]:
    """Each problem in turn. A problem whose inputs cannot be made has failed for everybody. Ctrl-C ends it early.

    Args:
        problems: of one op.
        contenders: those absent included.
        lab: where they are called.
        rounds: of each problem.
        listen: is told of every row.

    Raises:
        KeyboardInterrupt: nothing was measured before it.
    """
    rows: list[Row] = []
    try:
        for problem in problems:
            try:
                row = compare(problem, contenders, lab, rounds)
            except Exception as error:  # noqa: BLE001 - PyTorch's own errors: the other problems are still to be compared
                row = Row(problem, tuple(_lost(contender, error) for contender in contenders))
            rows.append(row)
            listen(row)
    except KeyboardInterrupt:
        if not rows:
            raise
    return rows


def reason_of(error: BaseException) -> str:
    """The first line of what was said, or what kind of error it is."""
    lines = str(error).strip().splitlines()
    return lines[0][:_REASON] if lines else type(error).__name__


def _begun(contender: Contender, problem: Problem, tensors: Any, lab: Lab, judge: Judge) -> Entry | _Running:
    """A contender that ran once, or why there is none."""
    missing = contender.why_absent()
    if missing is not None:
        return _entry(contender, Became.ABSENT, missing)
    unsupported = contender.why_not(problem)
    if unsupported is not None:
        return _entry(contender, Became.UNSUPPORTED, unsupported)
    try:
        with contender.within():
            results = contender.results(problem, tensors)
            lab.wait()
            errors = judge.errors(results)
            del results
            call = contender.call(problem, tensors)
            call()
            lab.wait()
    except Exception as error:  # noqa: BLE001 - others' code: whatever it raises is about itself
        return _entry(contender, Became.FAILED, reason_of(error))
    return _Running(contender, call, errors)


def _ended(one: _Running, problem: Problem, times: Sequence[Timed], failed: str | None) -> Entry:
    contender, said = one.contender, one.contender.said(problem)
    if failed is not None:
        return _entry(contender, Became.FAILED, failed)
    wrong = complaint(one.errors, problem.dtype)
    became = Became.OK if wrong is None else Became.WRONG
    return Entry(contender.name, contender.title, became, wrong or "", tuple(times), one.errors, said)


def _entry(contender: Contender, became: Became, reason: str) -> Entry:
    return Entry(contender.name, contender.title, became, reason)


def _lost(contender: Contender, error: Exception) -> Entry:
    missing = contender.why_absent()
    if missing is not None:
        return _entry(contender, Became.ABSENT, missing)
    return _entry(contender, Became.FAILED, f"not begun: {reason_of(error)}")
