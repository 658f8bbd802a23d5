"""Search for the winner of every row, one after the other in one process, within a given time.

    CUDA_VISIBLE_DEVICES=0 python -m benchmarks.search_rows --set peers,default --shard 0/2 --total 540 --out shard0
    CUDA_VISIBLE_DEVICES=1 python -m benchmarks.search_rows --set peers,default --shard 1/2 --total 540 --out shard1
    python -m benchmarks.merge_winners shard0/records.jsonl.gz shard1/records.jsonl.gz

The first row of a group (one op, dtype, head size and mask) is searched longest. The others begin with its winner and
runners-up, whose builds are in the cache, since B, NH and T are no constants of the kernels, and try few more. A row of
the set `full` is searched right after that of the same problem, among families of full precision alone, as briefly as
a follower. One worker process serves all; references are made ahead by other processes. A row that fails is reported
and left. Run again with the same --out, it goes on: rows that have a winner of today's templates are skipped.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.core.errors import AutotuneError
from autotune.devices.factory import CpuOpener, CudaOpener, DeviceOpener
from autotune.families.template import builtin_templates
from autotune.gpus.identity import DeviceName, parse_device
from autotune.gpus.known import gpu
from autotune.gpus.present import present_gpu
from autotune.ladder.warm import warm
from autotune.store import Store, open_store
from autotune.store.choosing import best_of, full_versions
from autotune.store.transfer import export_file
from autotune.tuning.budget import Clock
from autotune.tuning.choose import Subject, choose_subject
from autotune.tuning.events import silent
from autotune.tuning.ledger import costs
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_with
from benchmarks.allowance import Allowance
from benchmarks.merge_winners import merged
from benchmarks.prefetch import ReadyWorker, References
from benchmarks.rows import Group, Row, add_row_options, chosen_rows

_MIDDLE = 11  # log2 of the length that a group begins with: near all others
_WARMING = 3  # builds at a time for the first rows of groups to come


@dataclass
class Campaign:
    """All rows in turn: what is found goes into the store and, a line each, to `report`."""

    rows: list[Row]
    opener: DeviceOpener
    store: Store
    options: Options
    allowance: Allowance
    references: References
    families: str
    each: int
    report: Path
    failed: int = 0
    interrupted: bool = False
    _worker: ReadyWorker | None = None

    def run(self) -> None:
        """Search them all; the time being up ends it between two rows."""
        left, begun = list(self.rows), set[Group]()
        try:
            with self._warmed():
                while left and not self.allowance.up and not self.interrupted:
                    chosen = self.references.next_of([row.problem for row in left])
                    row = next(row for row in left if row.problem == chosen)
                    left.remove(row)
                    seconds = self.allowance.share(row, left, begun)
                    number = f"{len(self.rows) - len(left)}/{len(self.rows)}"
                    follows = row.full_precision or row.group in begun
                    if self._visit(row, seconds, follows, number) and not row.full_precision:
                        begun.add(row.group)
        finally:
            self._end_worker()
        for row in left:
            print(f"      no time left for {row.label}", flush=True)

    @contextmanager
    def _warmed(self) -> Iterator[None]:
        """Begin to build what groups' first rows will ask for, a few at a time."""
        if self.opener.estimates:  # no core is idle meanwhile
            yield
            return
        firsts = {(row.group, row.full_precision): row for row in reversed(self.rows)}
        searches = [(subject_of(row, self.families), row.problem) for row in reversed(firsts.values())]
        spec = present_gpu(self.opener.gpu_index or 0) or gpu("h200")
        with warm(searches, spec, replace(self.options, jobs=_WARMING)):
            yield

    def _visit(self, row: Row, seconds: float, follows: bool, number: str) -> bool:
        """Whether a winner was found."""
        start = time.monotonic()
        try:
            result = self._search(row, seconds, follows)
            if result.best is None and result.stopped == "timeout":  # the compiler was slow: what it made is kept
                result = self._search(row, 2 * seconds, follows)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other rows are still to be searched
            self.failed += 1
            self._end_worker()
            print(f"{number:>6} FAILED {row.label}: {type(error).__name__}: {error}", flush=True)
            return False
        finally:
            took = time.monotonic() - start
            self.allowance.note(seconds, took)
        self.failed += result.best is None
        self.interrupted = result.interrupted
        print(f"{number:>6} {took:5.1f} s  {summary(row, result)}", flush=True)
        with self.report.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"row": row.label, "seconds": round(took, 2), **result.to_json()}) + "\n")
        return result.best is not None

    def _search(self, row: Row, seconds: float, follows: bool) -> SearchResult:
        """One row's search; one that `follows` another of its group is held to the trials of such rows."""
        if self._worker is None:
            self._worker = ReadyWorker(self.opener, self.references)
        identity = self._worker.start().identity
        trials = self.options.trials if not follows else self._tried(row, identity.name) + self.each
        options = replace(self.options, trials=trials, timeout_s=seconds).checked()
        clock = Clock(options.budget(self.opener))
        subject = subject_of(row, self.families)
        return search_with(self._worker, clock, subject, row.problem, options, self.store, silent)

    def _tried(self, row: Row, device: str) -> int:
        """Trials that the search will find recorded."""
        today = {template.hash for template in subject_of(row, self.families).templates}
        records = self.store.measurements(row.problem, device)
        return sum(costs(record.measurement) for record in records if record.candidate.template_hash in today)

    def _end_worker(self) -> None:
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.end()


def summary(row: Row, result: SearchResult) -> str:
    """One line: time, rate, the fastest recorded peer's time over ours, trials, candidate."""
    best = result.best
    if best is None:
        return f"{row.label}: nothing right ran in {result.trials} trials; {'; '.join(result.messages.values())[:200]}"
    recorded = min(row.recorded.get("kernel", {}).values(), default=None)
    against = "" if recorded is None else f", {recorded / best.ms:.2f}x the fastest recorded"
    outcomes = " ".join(f"{outcome.value}={count}" for outcome, count in result.outcomes.items())
    trials = f"{result.trials - result.resumed} new trials ({outcomes})"
    return f"{row.label}: {best.ms:.4f} ms, {best.tflops:.0f} TFLOP/s{against}, {trials}, {best.candidate.key}"


def subject_of(row: Row, families: str) -> Subject:
    """The families to search: `all`, names, or `fused` (in 16 bits those on tensor cores: no other comes near)."""
    op, full = row.problem.op, row.full_precision
    if families == "all":
        return choose_subject(op, full_precision=full)
    if families != "fused":
        return choose_subject(op, families.split(","), full_precision=full)
    names = [template.name for template in builtin_templates(op) if not template.front.historical]
    fused = [name for name in names if name.startswith("flash")]
    tensor = [name for name in fused if not name.endswith("_simt")]
    return choose_subject(op, fused if row.problem.dtype == "fp32" else tensor, full_precision=full)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Groups as they come, in each the middle length first, then outwards; a row of full precision after its twin."""
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: (groups.index(row.group), _from_middle(row), -row.flops, *_same(row)))


def _same(row: Row) -> tuple[int, int, bool]:
    """What tells rows of a group, a distance from the middle and a number of flops apart, full precision last."""
    return row.problem.integer("B"), row.problem.integer("NH"), row.full_precision


def _from_middle(row: Row) -> float:
    return abs(row.problem.integer("T").bit_length() - 1 - _MIDDLE)


def has_winner(store: Store, row: Row, device: str) -> bool:
    """Whether a row has been searched to its end with the templates as they are."""
    if row.full_precision:
        record = best_of(store, row.problem, device, full_versions(row.problem.op), spills=False)
    else:
        winner = store.winner(row.problem, device)
        record = None if winner is None else winner.record
    if record is None:
        return False
    today = {template.name: template.hash for template in builtin_templates(row.problem.op)}
    ended = record.stage == "final" or parse_device(device).kind == "cpu"
    return ended and today.get(record.candidate.template) == record.candidate.template_hash


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, then write all records to OUT/records.jsonl.gz. Returns how many rows failed."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # references: many at a time, on a thread each
    options.out.mkdir(parents=True, exist_ok=True)
    rows, opener = ordered(chosen_rows(options)), _opener(options.device)
    with open_store(options.db or options.out / "records.db") as store:
        known = merged(store, options.known)
        left = [row for row in rows if options.again or not has_winner(store, row, _name(opener))]
        print(f"{len(rows)} rows, {len(rows) - len(left)} searched already; {known} records from files", flush=True)
        allowance = Allowance(options.total, options.seconds)
        search_options = Options(
            options.trials, None, "parzen", options.seed, options.jobs or _share_of_cores(options), spills=False
        )
        try:
            problems = list(dict.fromkeys(row.problem for row in left))
            with References(problems, options.seed, options.references) as references:
                campaign = Campaign(
                    left, opener, store, search_options, allowance, references, options.families,
                    options.each, options.out / "rows.jsonl",
                )  # fmt: skip
                campaign.run()
        finally:
            count = write_records(store, options.out)
            print(f"{count} records in {options.out}/records.jsonl.gz", flush=True)
    return campaign.failed


def write_records(store: Store, folder: Path) -> int:
    """All records of a store as OUT/records.jsonl.gz; returns how many."""
    plain = folder / "records.jsonl"
    count = export_file(store, plain)
    (folder / "records.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes(), compresslevel=6, mtime=0))
    plain.unlink()
    return count


def _share_of_cores(options: argparse.Namespace) -> int:
    shards = int(options.shard.split("/")[1])
    return max(1, (os.cpu_count() or 1) // shards - 2)


def _opener(device: str) -> DeviceOpener:
    return CpuOpener(gpu("h200")) if device == "cpu" else CudaOpener(int(device.partition(":")[2] or 0))


def _name(opener: DeviceOpener) -> str:
    """The device as records name it.

    Raises:
        AutotuneError: there is no such GPU.
    """
    if isinstance(opener, CpuOpener):
        return str(DeviceName("cpu", opener.spec.name))
    present = present_gpu(opener.gpu_index or 0)
    if present is None:
        raise AutotuneError("there is no NVIDIA GPU here; --device cpu uses the emulator")
    return present.name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="search for the winners of all rows")
    add_row_options(parser)
    parser.add_argument("--total", type=float, default=None, help="seconds for all rows together")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds a row, where there is no --total")
    parser.add_argument("--trials", type=int, default=None, help="at most this many candidates for a group's first row")
    parser.add_argument("--each", type=int, default=16, help="at most this many candidates for the others of a group")
    parser.add_argument("--families", default="fused", help="fused, all, or names, comma-separated")
    parser.add_argument("--again", action="store_true", help="go on with rows that have been searched already, too")
    parser.add_argument("--out", type=Path, required=True, help="folder of the database, the report and the records")
    parser.add_argument("--db", default=None, help="database [default: OUT/records.db]")
    parser.add_argument("--known", type=Path, nargs="*", default=(), help="files of records to begin with")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu")
    parser.add_argument("--jobs", type=int, default=None, help="builds at a time [default: this shard's cores]")
    parser.add_argument("--references", type=int, default=4, help="processes that make references ahead")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
