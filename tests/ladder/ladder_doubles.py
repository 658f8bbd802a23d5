"""A climb whose searches are a table of times."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.candidate import make_candidate
from autotune.core.errors import NoFeasibleConfiguration
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.known import gpu
from autotune.ladder.climbed import Climb, Rung, Timed
from autotune.ladder.parts import Part
from autotune.ladder.versions import Ladder, Version
from autotune.ops.registry import get_op
from autotune.tuning.choose import Subject
from autotune.tuning.result import Ranked, SearchResult
from tests.search_doubles import took

H200 = gpu("h200")
GRADIENT = get_op("softmax_backward").problem(B=1, NH=2, T=64, dtype="fp32")
PRODUCT = get_op("matmul").problem(B=1, NH=2, M=64, N=64, K=64, dtype="fp32")
WHOLE = get_op("backward").problem(B=1, NH=2, T=64, dtype="fp32")
SHARED = Part("product", lambda _: PRODUCT, count=2)


def ranked(family: str, ms: float, nbytes: float = 1e6) -> Ranked:
    return Ranked(make_candidate(family, "hash", {"THREADS": 64}), took(ms), 7, ms, 1.0 / ms, nbytes / ms / 1e6)


def version(name: str, family: str = "row_sum", published: float | None = None) -> Version:
    own = Part("gradient", lambda _: GRADIENT, family)
    return Version(name, f"idea of {name}", own, (SHARED,), published_ms=published)


def rung(of: Version, own_ms: float, shared_ms: float) -> Rung:
    own = Timed(of.own, GRADIENT, ranked(of.own.family or "", own_ms), 3)
    return Rung(of, own, (Timed(SHARED, PRODUCT, ranked("simt", shared_ms), 3),))


def climbed(estimated: bool = False) -> Climb:
    """Passes of 9, 3 and 1 ms, and between the last two a version that was skipped; products take 0.25 ms each."""
    versions = (version("V1", published=70.0), version("V2", published=7.0), version("V3"), version("V4"))
    rungs = (
        rung(versions[0], 8.5, 0.25),
        rung(versions[1], 2.5, 0.25),
        Rung(versions[2], skipped="it does not fit"),
        rung(versions[3], 0.5, 0.25),
    )
    ladder = Ladder("backward", {}, versions, reference="beside it", note="a note")
    return Climb(ladder, WHOLE, H200, estimated, rungs, 12.3456, "here.db")


@dataclass
class Searches:
    """Stands for `search_with`: answers with the time of the first family that supports the problem."""

    times: Mapping[str, float]
    asked: list[tuple[str, str]] = field(default_factory=list)
    stop_after: str = ""

    def __call__(self, worker: Any, clock: Any, subject: Subject, problem: Problem, *rest: Any) -> SearchResult:
        family = next(t.name for t in subject.templates if t.why_unsupported(problem, H200) is None)
        self.asked.append((problem.op, family))
        if family not in self.times:
            raise NoFeasibleConfiguration(f"nothing of {family} fits")
        best = ranked(family, self.times[family]) if self.times[family] else None
        return SearchResult(
            problem=problem, device="cpu:h200", title="NVIDIA H200", estimated=True, executed=problem, best=best,
            table=() if best is None else (best,), trials=3, resumed=0, new=3, outcomes={}, asked=3, duplicates=0,
            messages={} if best else {Outcome.WRONG_RESULT: "all wrong"}, space_size=9, seconds=1.0,
            build_seconds=0.5, device_seconds=0.5, database="here.db",
            stopped="interrupted" if family == self.stop_after else "trials",
        )  # fmt: skip


@dataclass
class FakeWorker:
    """Opens without a process."""

    opener: Any

    def start(self) -> Any:
        from autotune.devices.messages import Opened
        from autotune.gpus.identity import DeviceIdentity

        return Opened(DeviceIdentity("cpu", H200), {})

    def end(self) -> None:
        pass
