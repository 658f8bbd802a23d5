"""A climb makes each search once, in few workers, and says why a version has no time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import UsageError
from autotune.core.problem import Problem
from autotune.devices.factory import CpuOpener
from autotune.ladder import climb as module
from autotune.ladder.climb import climb, default_options, ladder_problem
from autotune.ladder.climbed import Climb
from autotune.ladder.peers import Ask, Peers, no_peers
from autotune.ladder.stations import SKIPPED
from autotune.ladder.versions import BACKWARD, FORWARD, Ladder
from autotune.ladder.warm import first_candidates
from autotune.store import open_store
from autotune.tuning.budget import Budget
from autotune.tuning.choose import choose_subject
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from tests.ladder.ladder_doubles import GRADIENT, H200, FakeWorker, Searches

TIMES = {
    "thread_per_element": 8.0, "warp_per_element": 4.0, "block_per_row": 2.0, "row_sum": 1.0, "mma": 0.25, "simt": 0.5,
    "flash_simt": 0.75, "flash_mma": 0.125, "naive": 16.0, "minimal_flash": 32.0, "warp_per_row": 1.5, "copy": 0.0625,
    "warp_per_query": 1.25, "flash_tf32x3": 0.375,
}  # fmt: skip


def climbing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ladder: Ladder, searches: Searches,
    timeout_s: float | None = None, trials: int = 1, ask_peers: Ask = no_peers, **fields: Any,
) -> tuple[Climb, int, list[str]]:  # fmt: skip
    """The climb, how many workers it used, and what it announced."""
    workers: list[FakeWorker] = []
    said: list[str] = []

    def make(opener: CpuOpener) -> FakeWorker:
        workers.append(FakeWorker(opener))
        return workers[-1]

    monkeypatch.setattr(module, "SharedWorker", make)
    monkeypatch.setattr(module, "search_with", searches)
    problem = ladder_problem(ladder, fields, emulated=True)
    with open_store(tmp_path / "a.db") as store:
        found = climb(
            ladder, problem, CpuOpener(H200), Options(trials=trials), store, announce=said.append,
            timeout_s=timeout_s, ask_peers=ask_peers,
        )  # fmt: skip
    return found, len(workers), said


def test_backward(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    searches = Searches(TIMES)
    found, workers, said = climbing(monkeypatch, tmp_path, BACKWARD, searches, dtype="fp32")
    ms = [10.25, 10.25, 6.25, 6.25, 6.25, 4.25, 3.25, 3.25, 0.75, None, 0.375]
    assert [rung.ms for rung in found.rungs] == ms
    assert [rung.own.ms for rung in found.rungs if rung.own] == [8.0, 8.0, 4.0, 4.0, 4.0, 2.0, 1.0, 1.0, 0.75, 0.375]
    assert len(searches.asked) == 8 + 4 + 2  # softmax backward of each; products and permute once; the fused ones
    assert workers == 1
    assert said[0] == "V1: dP = dO·Vᵀ, all families"
    assert [text.split(":")[0] for text in said] == [
        *["V1"] * 5, "V2", "V3", "V4", "V5", "V6", "V7", "V8", "F1", "F3",
    ]  # fmt: skip
    assert (found.estimated, found.spec, found.interrupted) == (True, H200, False)


def test_forward_in_16_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first four compute in fp32, and with fp32 products; V6 is V5 without its four permutes."""
    searches = Searches(TIMES)
    found, _, _ = climbing(monkeypatch, tmp_path, FORWARD, searches, dtype="fp16")
    assert {rung.version.name: rung.ms for rung in found.rungs} == {
        "V1": 16.0, "V2": 32.0, "V3": 2.0 + 1.0 + 0.25, "V4": 1.5 + 1.0 + 0.25, "V5": 1.5 + 0.5 + 0.25, "V6": 2.0,
        "V7": 1.25, "V8": 0.75, "V9": 0.125, "V10": None,
    }  # fmt: skip
    dtypes = [rung.own.problem.dtype for rung in found.rungs if rung.own]
    assert dtypes == ["fp32"] * 4 + ["fp16"] * 5
    # Fused ones; softmaxes; two products and a copy in both dtypes; the products in place.
    assert len(searches.asked) == 5 + 3 + 2 * 3 + 2


def test_forward_in_fp32_leaves_out_what_is_about_16_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _, _ = climbing(monkeypatch, tmp_path, FORWARD, Searches(TIMES), dtype="fp32")
    skipped = {rung.version.name: rung.skipped for rung in found.rungs if rung.skipped}
    assert skipped.keys() == {"V5", "V9"}
    assert set(skipped.values()) == {SKIPPED["16-bit"]}


def test_a_version_without_a_kernel_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times = {name: ms for name, ms in TIMES.items() if name != "block_per_row"} | {"thread_per_element": 0.0}
    found, _, _ = climbing(monkeypatch, tmp_path, BACKWARD, Searches(times), dtype="fp32")
    assert found.rungs[0].skipped == "no candidate was right and ran: all wrong"
    assert found.rungs[5].skipped == "nothing of block_per_row fits"
    assert [rung.ms for rung in found.rungs] == [None, None, 6.25, 6.25, 6.25, None, 3.25, 3.25, 0.75, None, 0.375]
    assert list(found.factors())[6:8] == [(6.25 / 3.25, 6.25 / 3.25), (1.0, 6.25 / 3.25)]


def test_an_interruption_ends_the_climb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    searches = Searches(TIMES, stop_after="warp_per_element")
    found, _, _ = climbing(monkeypatch, tmp_path, BACKWARD, searches, dtype="fp32")
    assert searches.asked[-1] == ("softmax_backward", "warp_per_element")
    assert found.interrupted
    assert [rung.skipped for rung in found.rungs[:-1]] == [""] * 3 + ["interrupted before it"] * 6 + [SKIPPED["16-bit"]]


def test_an_interruption_between_searches_ends_the_climb_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Impatient(Searches):
        def __call__(self, *asked: Any) -> SearchResult:
            if len(self.asked) == 5:
                raise KeyboardInterrupt
            return super().__call__(*asked)

    found, _, _ = climbing(monkeypatch, tmp_path, BACKWARD, Impatient(TIMES), dtype="fp32")
    assert found.interrupted
    assert [rung.ms for rung in found.rungs] == [10.25] + [None] * 10


def test_the_time_is_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    searches = Searches(TIMES)
    found, workers, said = climbing(monkeypatch, tmp_path, BACKWARD, searches, timeout_s=0.0, dtype="fp16")
    assert (searches.asked, said, workers) == ([], [], 1)
    assert {rung.skipped for rung in found.rungs} == {"the time was up before it", SKIPPED["32-bit"]}


def test_the_time_is_shared_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a search leaves is there for those after it; each has its least trials whatever the time."""
    clock = [100.0]
    monkeypatch.setattr("autotune.ladder.climb.time.monotonic", lambda: clock[0])
    budgets: list[Budget] = []

    class Timed(Searches):
        def __call__(self, worker: Any, given: Any, *asked: Any) -> SearchResult:
            budgets.append(given.budget)
            clock[0] += 2.0 if len(budgets) == 1 else 5.0
            return super().__call__(worker, given, *asked)

    climbing(monkeypatch, tmp_path, BACKWARD, Timed(TIMES), timeout_s=70.0, dtype="fp32", trials=9)
    shares = [budget.timeout_s for budget in budgets]
    assert shares[:3] == [70.0 / 14, 68.0 / 13, 63.0 / 12]
    assert {(budget.trials, budget.least) for budget in budgets} == {(9, 3)}


def test_peers_are_asked_once_all_is_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    searches = Searches(TIMES)
    asked: list[Any] = []

    @contextmanager
    def ask(problem: Problem, parts: Sequence[Problem]) -> Iterator[Callable[[], Peers]]:
        asked.append((problem.op, len(searches.asked), sum(part.op == "matmul" for part in parts)))
        yield lambda: Peers({"cuDNN": float(len(searches.asked))})

    found, *_ = climbing(monkeypatch, tmp_path, BACKWARD, searches, dtype="fp32", ask_peers=ask)
    assert asked == [("backward", 0, 3)]
    assert found.peers.attention == {"cuDNN": 14.0}


def test_few_trials_on_the_emulator_more_on_a_gpu() -> None:
    assert default_options(None, 0, None, emulated=True).trials == 2
    assert default_options(None, 0, None, emulated=False).trials == 12
    assert default_options(5, 1, 3, emulated=False) == Options(trials=5, seed=1, jobs=3, limit_s=60.0)
    hurried = default_options(5, 1, 3, emulated=False, hurried=True)
    assert hurried == Options(trials=5, seed=1, jobs=3, limit_s=60.0, final=False)
    assert default_options(4, 1, 3, emulated=False) == Options(4, seed=1, jobs=3, limit_s=60.0, final=False)
    with pytest.raises(UsageError, match="jobs=-1"):
        default_options(5, 1, -1, emulated=False)


def test_what_is_built_ahead_is_what_a_search_begins_with() -> None:
    subject = choose_subject("softmax_backward")
    chosen = first_candidates(subject, GRADIENT, H200, Options(trials=4, seed=1))
    assert len(set(chosen)) == len(chosen) == 4
    assert chosen[0].config == subject.templates[0].defaults
    assert first_candidates(subject, GRADIENT, H200, Options(trials=2, seed=1)) == chosen[:2]
    assert first_candidates(subject, GRADIENT, H200, Options(trials=4, seed=2)) != chosen
