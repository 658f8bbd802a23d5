"""What a user gets on problems of real models that nobody tuned: look-up, quick tuning, a search, and the peers.

    python -m benchmarks.models --out models --total 250    all forty, as far as the time goes; again: goes on
    python -m benchmarks.models --out models --pass look-up           look-ups and peers alone
    python -m benchmarks.models --out models --without-own    their shipped winners stand for what is searched
    CUDA_VISIBLE_DEVICES=1 python -m benchmarks.models --out models1 --shard 1/2 --total 250
    python -m benchmarks.models --out models --table [--merge models1] prints the table, for docs/results.md
    python -m benchmarks.merge_winners models/records.jsonl.gz        ships what was found

Two passes over the problems of `benchmarks.model_problems`. The first looks up and times what is found beside the
peers. The second searches as `autotune search --quick` does, goes on as `autotune search` does, and times all
anew: what was looked up, what both found, and the peers, interleaved in one run, L2 flushed, the median round of each.
Every problem has a database of its own, so no problem profits from another's search. Builds for problems to come are
made meanwhile. With `--without-own` look-ups and quick tuning see no winner of any of the forty; where one ships it
stands for what a search finds, and no search is made. A problem that fails is reported and left. OUT/rows.jsonl has a
line for each problem and pass that is done; those are not done again.
"""

import argparse
import gzip
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from autotune.answers.best import Best
from autotune.answers.lookup import best
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.errors import AutotuneError, NoFeasibleConfiguration
from autotune.core.problem import Problem
from autotune.devices.factory import CudaOpener, DeviceOpener
from autotune.families.render import render
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.present import present_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from autotune.store import open_store
from autotune.store.transfer import export_file
from autotune.tuning.budget import Clock
from autotune.tuning.choose import Subject, choose_families, choose_subject
from autotune.tuning.events import silent
from autotune.tuning.history import Records
from autotune.tuning.quick import likely
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_with
from benchmarks.left_out import left_out
from benchmarks.model_problems import ModelProblem, model_problems, shard
from benchmarks.model_table import table
from benchmarks.prefetch import ReadyWorker, References
from benchmarks.rows import Row
from benchmarks.search_rows import subject_of

PASSES = ("look-up", "tuned")
LOOK_UP, QUICK, SEARCH = "look-up", "quick", "search"
"""Our configurations, as rows name them."""

_LEAST_SEARCH_S = 2.0
_ELSE_S = 8.0  # what a problem takes beside its search, until it is known better
_WARMING = 0.6  # of the cores build for problems to come


class Rounds(Protocol):
    """Times several configurations and the peers (`benchmarks.model_rounds.GpuRounds`)."""

    def __call__(self, problem: Problem, ours: Mapping[str, Best]) -> dict[str, Any]:
        """`ms`, `rounds`, `refused` and `difference`, each by name."""


@dataclass
class Tuner:
    """Looks problems up and searches for them, on one device with one worker process."""

    spec: DeviceSpec
    opener: DeviceOpener
    references: References
    folder: Path
    jobs: int | None = None
    _worker: ReadyWorker | None = None

    def database(self, problem: ModelProblem) -> str:
        """A database for this problem alone."""
        return str(self.folder / f"{model_problems().index(problem):02}.db")

    def look_up(self, problem: ModelProblem) -> tuple[Best, float]:
        """The best configuration known, and the milliseconds that asking took."""
        start = time.perf_counter()
        asked: dict[str, Any] = problem.problem.fields
        found = best(problem.problem.op, db=self.database(problem), device=self.spec, **asked)
        return found, 1e3 * (time.perf_counter() - start)

    def search(self, problem: ModelProblem, seconds: float | None) -> SearchResult:
        """Quick tuning where `seconds` is None; else a search that goes on from what is recorded.

        Raises:
            AutotuneError: as searches do.
        """
        if self._worker is None:
            self._worker = ReadyWorker(self.opener, self.references)
        options = Options(timeout_s=seconds, jobs=self.jobs, quick=seconds is None, spills=False).checked()
        with open_store(self.database(problem)) as store:
            clock = Clock(options.budget(self.opener))
            return search_with(self._worker, clock, subject(problem.problem), problem.problem, options, store, silent)

    def end(self) -> None:
        """Stop the worker process."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.end()


def subject(problem: Problem) -> Subject:
    """The fused families on tensor cores where one supports the problem (no other comes near in 16 bits), else all."""
    fused = subject_of(Row(problem), "fused")
    spec = present_gpu(0)
    if spec is not None and all(template.why_unsupported(problem, spec) for template in fused.templates):
        return choose_subject(problem.op)
    return fused


@dataclass
class Campaign:
    """All problems in turn; a line each into OUT/rows.jsonl."""

    problems: Sequence[ModelProblem]
    tuner: Tuner
    rounds: Rounds
    report: Path
    total: float | None = None
    seconds: float = 12.0
    start: float = field(default_factory=time.monotonic)
    failed: int = 0
    shipped: Mapping[str, Best] = field(default_factory=dict)
    """Winners that stand for what a search would find, by the names of problems."""
    _others: list[float] = field(default_factory=list)  # what problems took beside their searches

    def run(self, passes: Sequence[str]) -> None:
        """Both passes, as far as the time goes."""
        done = {(row["name"], row["pass"]) for row in rows_in(self.report)}
        for which in passes:
            left = [problem for problem in self.problems if (problem.name, which) not in done]
            while left and not self._up:
                problem = left.pop(0)
                self._visit(problem, which, 1 + len(left))
            for problem in left:
                print(f"no time left for {problem.name} ({which})", flush=True)
        self.tuner.end()

    @property
    def _up(self) -> bool:
        return self.total is not None and time.monotonic() - self.start > self.total

    def _visit(self, problem: ModelProblem, which: str, left: int) -> None:
        start = time.monotonic()
        row: dict[str, Any] = {
            "name": problem.name, "kind": problem.kind, "source": problem.source, "note": problem.note, "pass": which,
            "problem": problem.problem.to_json(), "flops": get_op(problem.problem.op).flops(problem.problem),
            "nbytes": get_op(problem.problem.op).nbytes(problem.problem),
        }  # fmt: skip
        try:
            row |= self._looked_up(problem) if which == "look-up" else self._tuned(problem, left)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other problems are still to be measured
            self.failed += 1
            self.tuner.end()
            print(f"FAILED {problem.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            return
        row["seconds"] = round(time.monotonic() - start, 2)
        with self.report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        times = " ".join(f"{name} {ms:.4f}" for name, ms in row["ms"].items())
        print(f"{row['seconds']:5.1f} s {problem.name}: {times}", flush=True)

    def _looked_up(self, problem: ModelProblem) -> dict[str, Any]:
        found, host_ms = self.tuner.look_up(problem)
        return {"ours": {LOOK_UP: _said(found, host_ms / 1e3)}, **self.rounds(problem.problem, {LOOK_UP: found})}

    def _tuned(self, problem: ModelProblem, left: int) -> dict[str, Any]:
        """Each look-up after a search gives what that search named the winner."""
        begun = time.monotonic()
        found, host_ms = self.tuner.look_up(problem)
        ours = {LOOK_UP: found}
        said = {LOOK_UP: _said(found, host_ms / 1e3)}
        searched = 0.0
        for name, seconds in ((QUICK, None), (SEARCH, self._search_seconds(left))):
            if name == SEARCH and problem.name in self.shipped:
                ours[name] = self.shipped[problem.name]
                said[name] = _said(ours[name], 0.0)
                continue
            start = time.monotonic()
            result = self.tuner.search(problem, seconds)
            took = time.monotonic() - start
            searched += took if name == SEARCH else 0.0
            if result.best is None:
                said[name] = {"seconds": took, "nothing": "; ".join(result.messages.values())[:200]}
                continue
            ours[name], _ = self.tuner.look_up(problem)
            said[name] = {**_said(ours[name], took), "trials": result.trials, "new": result.new}
        row = {"ours": said, **self.rounds(problem.problem, ours)}
        self._others.append(time.monotonic() - begun - searched)
        return row

    def _search_seconds(self, left: int) -> float:
        """For the next search: what the time left allows each of the problems left."""
        if self.total is None:
            return self.seconds
        other = sum(self._others[-6:]) / len(self._others[-6:]) if self._others else _ELSE_S
        share = (self.total - (time.monotonic() - self.start)) / left - other
        return max(_LEAST_SEARCH_S, min(self.seconds, share))


def _said(found: Best, seconds: float) -> dict[str, Any]:
    return {
        "answer": found.answer, "candidate": found.candidate.key, "template_hash": found.candidate.template_hash,
        "sure": found.sure, "expected_ms": found.expected_ms, "seconds": round(seconds, 4),
    }  # fmt: skip


def rows_in(report: Path) -> list[dict[str, Any]]:
    """The lines of a report; none where there is no file."""
    return [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()] if report.exists() else []


def newest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A row a problem, in the order of the problems: that of the second pass where there is one."""
    order = [problem.name for problem in model_problems()]
    ranked = sorted(rows, key=lambda row: PASSES.index(row["pass"]))
    last = {row["name"]: row for row in ranked}
    return [last[name] for name in order if name in last]


def winners(problems: Sequence[ModelProblem], spec: DeviceSpec) -> dict[str, Best]:
    """The shipped winners of those problems that have one, by the problems' names."""
    found = {}
    for problem in problems:
        asked: dict[str, Any] = problem.problem.fields
        answer = best(problem.problem.op, db="/nowhere/none.db", device=spec, **asked)
        if answer.answer == "exact":
            found[problem.name] = answer
    return found


@contextmanager
def warmed(problems: Sequence[ModelProblem], spec: DeviceSpec, folder: Path, *, quick: bool) -> Iterator[None]:
    """Begin to build, a few at a time, what look-ups answer and, with `quick`, what quick tuning will ask for."""
    stop = threading.Event()
    jobs = max(2, int(_WARMING * (os.cpu_count() or 1)))
    with BuildPool(BuildCache(), jobs) as pool:
        thread = threading.Thread(
            target=_submit, args=(problems, spec, folder / "ahead.db", quick, pool, stop), name="warm", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _submit(
    problems: Sequence[ModelProblem], spec: DeviceSpec, db: Path, quick: bool, pool: BuildPool, stop: threading.Event
) -> None:
    for one in (False, True) if quick else (False,):
        for problem in problems:
            for request in requests_of(problem.problem, spec, db, quick=one):
                if stop.is_set():
                    return
                pool.submit(request)


def requests_of(problem: Problem, spec: DeviceSpec, db: Path, *, quick: bool) -> Iterator[CubinRequest]:
    """The builds that a problem needs: of look-ups, the forward kernel's for backward too; or of quick tuning."""
    try:
        if not quick:
            for op in dict.fromkeys((problem.op, "forward")):
                asked: dict[str, Any] = problem.fields
                yield CubinRequest(best(op, db=str(db), device=spec, **asked).source, spec.arch)
            return
        chosen = subject(problem)
        templates = {template.name: template for template in chosen.templates}
        with open_store(db) as store:
            records = Records(store, DeviceIdentity("cuda", spec), problem)
            candidates = likely(chosen.templates, choose_families(chosen.templates, problem, spec), records)
        for candidate in candidates:
            yield CubinRequest(render(templates[candidate.template], problem, candidate.config, spec), spec.arch)
    except AutotuneError:
        return  # the look-up or search meets the same error, and says so


def write_records(folder: Path) -> int:
    """The records of all the problems' databases as FOLDER/records.jsonl.gz; returns how many lines."""
    plain, count = folder / "records.jsonl", 0
    with gzip.open(folder / "records.jsonl.gz", "wt", encoding="utf-8") as joined:
        for path in sorted(folder.glob("[0-9][0-9].db")):
            with open_store(path, create=False) as store:
                count += export_file(store, plain)
            joined.write(plain.read_text(encoding="utf-8"))
            plain.unlink()
    return count


def chosen_problems(options: argparse.Namespace) -> list[ModelProblem]:
    """Those of the shard whose name or kind has a text asked for, in the order of the texts.

    Raises:
        ValueError: no such shard.
    """
    index, count = (int(text) for text in options.shard.split("/"))
    separator = "|" if "|" in (options.only or "") else ","  # some names have commas
    wanted = [text.strip().lower() for text in options.only.split(separator)] if options.only else [""]
    of_shard = shard(model_problems(), index, count)
    turns = ([p for p in of_shard if text in f"{p.name} {p.kind}".lower()] for text in wanted)
    return list(dict.fromkeys(problem for turn in turns for problem in turn))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write records and the table. Returns how many problems failed."""
    options = _parser().parse_args(arguments)
    if options.table:
        rows = [row for folder in (options.out, *options.merge) for row in rows_in(folder / "rows.jsonl")]
        print(table(newest(rows)))
        return 0
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # references: many at a time, on a thread each
    start = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    passes = PASSES if options.only_pass is None else (options.only_pass,)
    spec = present_gpu(0)
    if spec is None:
        raise SystemExit("error: there is no NVIDIA GPU here; --table prints what was measured elsewhere")
    problems, report = chosen_problems(options), options.out / "rows.jsonl"
    done = {row["name"] for row in rows_in(report) if row["pass"] == passes[-1]}
    left = [problem for problem in problems if problem.name not in done]
    to_check = [problem.problem for problem in left] if "tuned" in passes else []
    shipped = winners(left, spec) if options.without_own else {}
    with (
        left_out([problem.problem for problem in model_problems()]) if options.without_own else nullcontext(),
        warmed(left, spec, options.out, quick="tuned" in passes),
        References(to_check, 0, options.references) as references,
    ):
        from benchmarks.model_rounds import GpuRounds  # imports PyTorch, while compilers work

        rounds = GpuRounds.open(str(options.out / "forward.db"))
        print(f"{len(problems)} problems, {len(problems) - len(left)} done; {rounds.environment()}", flush=True)
        tuner = Tuner(spec, CudaOpener(0), references, options.out, options.jobs)
        campaign = Campaign(problems, tuner, rounds, report, options.total, options.seconds, start, shipped=shipped)
        try:
            campaign.run(passes)
        finally:
            tuner.end()
            print(f"{write_records(options.out)} records in {options.out}/records.jsonl.gz", flush=True)
    text = table(newest(rows_in(report)))
    (options.out / "models.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return campaign.failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="look-up, quick tuning, search and peers on problems of real models")
    parser.add_argument("--out", type=Path, required=True, help="folder; what is there already is kept")
    parser.add_argument("--total", type=float, default=None, help="seconds after which no problem is begun")
    parser.add_argument("--seconds", type=float, default=12.0, help="at most so many for each search")
    parser.add_argument("--pass", dest="only_pass", choices=PASSES, default=None, help="only this pass")
    parser.add_argument("--only", default=None, help="names or kinds that have one of these texts, with , or | between")
    parser.add_argument("--without-own", action="store_true", help="no problem's shipped winner is known to look-ups")
    parser.add_argument("--shard", default="0/1", help="INDEX/COUNT: every COUNT-th problem")
    parser.add_argument("--jobs", type=int, default=None, help="builds at a time [default: one a core]")
    parser.add_argument("--references", type=int, default=4, help="processes that make references ahead")
    parser.add_argument("--table", action="store_true", help="measure nothing: print the table of OUT/rows.jsonl")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="with --table: further folders")
    return parser


if __name__ == "__main__":
    try:
        raise SystemExit(min(1, main()))
    except NoFeasibleConfiguration as error:
        raise SystemExit(f"error: {error}") from None
