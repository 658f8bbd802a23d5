"""Where look-ups leave a cliff: neighbouring problems, one of which takes far longer for its work than the other.

    python -m benchmarks.cliffs --out cliffs --total 120             measured, on a GPU; again: goes on
    python -m benchmarks.cliffs --estimate h200 --out cliffs         estimates for a GPU, on any machine
    python -m benchmarks.cliffs --out cliffs --plot docs/cliffs.svg  draws what is in OUT, too

Every problem is answered by a look-up alone. A sweep changes one thing: T from 1 to 20000 (powers of two, tiles ± 1,
primes), B·NH from 1 to 100000, NH/NH_kv from 1 to 64, T_kv/T from 1/64 to 64. A problem's time over work is its time
over that which it would take at the GPU's rates: a launch, and the longer of its bytes and its operations, at half the
tensor cores' peak, in whole tiles of 64, 128 or 256 rows and whole waves of them. Neighbours whose figures differ by
more than 1.3 are a jump. Estimates are those that look-ups choose by (`autotune.estimate.fit`), so
they show where a choice is missing, not where a kernel is slow.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, fields
from itertools import pairwise, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.answers.best import Best
from autotune.answers.lookup import best
from autotune.bench.ours import Ours, build_all
from autotune.core.dtypes import torch_dtype
from autotune.core.errors import AutotuneError
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.protocol import TimingBudget
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.gpus.present import present_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from autotune.report.pictures import check_plot, save_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JUMP = 1.3
_LAUNCH_MS = 8e-3  # of one kernel, or several: below it no difference counts
_TILES = (64, 128, 256)
_SPLIT_T, _SPLIT_KEYS, _SHARES = 1024, 256, 16
_PEAK_SHARE = 0.5
_BUDGET = TimingBudget(min_repeats=3, max_repeats=20, max_seconds=0.02, warmup=1)

LENGTHS = (
    1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 77, 96, 97, 127, 128, 129, 160, 191, 192,
    193, 197, 255, 256, 257, 320, 383, 384, 385, 448, 511, 512, 513, 577, 640, 729, 768, 896, 1023, 1024, 1025, 1279,
    1280, 1281, 1500, 1777, 2047, 2048, 2049, 2500, 3001, 3583, 4095, 4096, 4097, 4608, 5003, 6144, 7001, 8191, 8192,
    8193, 10007, 12288, 16383, 16384, 16385, 20000,
)  # fmt: skip
HEADS = (
    1, 2, 3, 5, 8, 12, 16, 24, 33, 48, 64, 66, 67, 96, 128, 131, 132, 133, 192, 256, 264, 265, 384, 512, 768, 1024,
    1536, 2048, 4096, 10000, 30000, 65535, 65536, 100000,
)  # fmt: skip
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
RATIOS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Sweep:
    """Problems along one thing that changes: `name` says what the others are, `along` what changes."""

    name: str
    along: str
    points: tuple[tuple[float, Problem], ...]


def sweeps(sizes: Sequence[int], dtype: str) -> Iterator[Sweep]:
    """All sweeps for these head sizes, in one dtype; those of one head size one after the other, so builds serve."""
    for HS in sizes:
        for op in ("forward", "backward"):
            for causal in (False, True):
                fixed: dict[str, Value] = {"HS": HS, "dtype": dtype, "causal": causal}
                yield from _of(op, fixed, backward=op == "backward")


def _of(op: str, fixed: Mapping[str, Value], *, backward: bool) -> Iterator[Sweep]:
    make = get_op(op).problem
    name = f"{op} HS={fixed['HS']} {fixed['dtype']}{' causal' if fixed['causal'] else ''}"
    for B, NH in ((1, 12), (4, 32)):
        points = tuple((float(T), make(B=B, NH=NH, T=T, **fixed)) for T in LENGTHS)
        yield Sweep(f"{name} B={B} NH={NH}", "T", points)
    if not backward and not fixed["causal"]:
        for B, NH, NH_kv in ((1, 32, 8), (16, 32, 8)):
            points = tuple((float(T), make(B=B, NH=NH, NH_kv=NH_kv, T=1, T_kv=T, **fixed)) for T in LENGTHS)
            yield Sweep(f"{name} B={B} NH={NH} NH_kv={NH_kv} T=1", "T_kv", points)
            points = tuple(
                (float(T), make(B=B, NH=NH, NH_kv=NH_kv, T=T, T_kv=8192, **fixed)) for T in LENGTHS if T <= 1025
            )
            yield Sweep(f"{name} B={B} NH={NH} NH_kv={NH_kv} T_kv=8192", "T", points)
    yield Sweep(f"{name} T=512", "B·NH", tuple((float(n), _heads(make, n, T=512, **fixed)) for n in HEADS if n <= 4096))
    yield Sweep(f"{name} T=64", "B·NH", tuple((float(n), _heads(make, n, T=64, **fixed)) for n in HEADS))
    points = tuple((float(g), make(B=2, NH=_whole(64, g), NH_kv=_whole(64, g) // g, T=1024, **fixed)) for g in GROUPS)
    yield Sweep(f"{name} B=2 NH near 64 T=1024", "NH/NH_kv", points)
    pairs = ((r, max(64, int(2048 / math.sqrt(r)))) for r in RATIOS)
    points = tuple((r, make(B=2, NH=16, T=T, T_kv=max(1, round(T * r)), **fixed)) for r, T in pairs)
    yield Sweep(f"{name} B=2 NH=16", "T_kv/T", points)


def _heads(make: Callable[..., Problem], count: int, **fields: Value) -> Problem:
    """B·NH = `count`, with up to 16 heads a batch."""
    NH = next(n for n in (16, 12, 11, 8, 7, 6, 5, 4, 3, 2, 1) if count % n == 0)
    return make(B=count // NH, NH=NH, **fields)


def _whole(about: int, divisor: int) -> int:
    return max(1, round(about / divisor)) * divisor


def ideal_ms(problem: Problem, spec: DeviceSpec) -> float:
    """What the problem's work takes at the GPU's rates, in whole tiles and whole waves of the best of three tiles."""
    op = get_op(problem.op)
    flops = min(_tiled(problem, spec, rows, packed) for rows in _TILES for packed in (False, True))
    return _LAUNCH_MS + max(
        flops / (_PEAK_SHARE * spec.tensor_tflops * 1e9), op.nbytes(problem) / (spec.bandwidth_gbs * 1e6)
    )


def _tiled(problem: Problem, spec: DeviceSpec, rows: int, packed: bool) -> float:
    """Operations that take as long when all SMs have them: blocks have `rows` queries, in the backward pass keys."""
    B, NH, NH_kv, T, T_kv = (problem.integer(name) for name in ("B", "NH", "NH_kv", "T", "T_kv"))
    backward = problem.op == "backward"
    way = {"BLOCK_M": 64 if backward else rows, "BLOCK_N": rows if backward else 64, "PACK_HEADS": packed}
    heads = NH_kv if packed or backward else NH
    length = T_kv if backward else T * (NH // NH_kv) if packed else T
    blocks = B * heads * -(-length // rows)
    # Where queries are few, keys are split among blocks; where blocks of keys are few, the queries that see them.
    parts = NH // NH_kv * -(-T // 64) if backward else 1 if T > _SPLIT_T else T_kv // _SPLIT_KEYS
    most = min(parts, 2 * spec.sm_count // blocks, _SHARES) if backward else parts
    counts = [blocks << split for split in range(max(1, most.bit_length()))]
    waves = min(-(-count // spec.sm_count) * spec.sm_count / count for count in counts)
    return get_op(problem.op).tiled_flops(problem, way) * waves


@dataclass(frozen=True)
class Jump:
    """Two neighbours of a sweep, and how many times as long the second takes for its work."""

    sweep: str
    along: str
    before: float
    after: float
    factor: float
    answers: tuple[str, str]

    def __str__(self) -> str:
        return (
            f"{self.factor:5.2f}x  {self.sweep}: {self.along} {self.before:g} -> {self.after:g}\n"
            f"        {self.answers[0]}\n        {self.answers[1]}"
        )


def jumps(rows: Sequence[Mapping[str, Any]]) -> list[Jump]:
    """Neighbours whose time over work differs by more than `JUMP`, largest first."""
    found = []
    for name in dict.fromkeys(row["sweep"] for row in rows):
        line = sorted((row for row in rows if row["sweep"] == name and "ms" in row), key=lambda row: row["at"])
        for one, two in pairwise(line):
            factor = (two["ms"] / two["ideal_ms"]) / (one["ms"] / one["ideal_ms"])
            if max(factor, 1 / factor) > JUMP:
                answers = (f"{one['answer']}: {one['candidate']}", f"{two['answer']}: {two['candidate']}")
                found.append(Jump(name, one["along"], one["at"], two["at"], factor, answers))
    return sorted(found, key=lambda jump: -max(jump.factor, 1 / jump.factor))


def draw(rows: Sequence[Mapping[str, Any]], title: str) -> "Figure":
    """Time over work against what changes: a panel for each thing that changes, a line for each sweep."""
    from matplotlib.figure import Figure

    things = list(dict.fromkeys(row["along"] for row in rows))
    figure = Figure(figsize=(11, 3.4 * len(things)), layout="constrained")
    for number, along in enumerate(things, start=1):
        axes = figure.add_subplot(len(things), 1, number)
        for name in dict.fromkeys(row["sweep"] for row in rows if row["along"] == along):
            line = sorted(
                (row["at"], row["ms"] / row["ideal_ms"]) for row in rows if row["sweep"] == name and "ms" in row
            )
            axes.plot(*zip(*line, strict=True), linewidth=0.8, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlabel(along)
        axes.set_ylabel("time over work")
        axes.grid(visible=True, linewidth=0.4)
        axes.legend(fontsize=5, frameon=False, ncols=2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


Timer = Callable[[Best], float | None]


def run(
    all_sweeps: Sequence[Sweep],
    spec: DeviceSpec,
    timer: Timer,
    report: Path,
    total: float | None,
    prepare: Callable[[Sequence[Problem]], object] = lambda _: None,
) -> int:
    """Every point of every sweep that is not in the report; a line each. Returns how many failed.

    `prepare`: what a sweep's problems need, before the first of them is timed: all at once would leave a run that is
    cut short with nothing.
    """
    start, failed = time.monotonic(), 0
    done = {(row["sweep"], row["at"]) for row in rows_in(report)}
    with report.open("a", encoding="utf-8") as file:
        for sweep in all_sweeps:
            left = [(at, problem) for at, problem in sweep.points if (sweep.name, at) not in done]
            if left and (total is None or time.monotonic() - start <= total):
                prepare([problem for _, problem in left])
            for at, problem in left:
                if total is not None and time.monotonic() - start > total:
                    print(f"the time is up before {sweep.name}, {sweep.along} {at:g}; run again to go on", flush=True)
                    return failed
                row: dict[str, Any] = {
                    "sweep": sweep.name,
                    "along": sweep.along,
                    "at": at,
                    "problem": problem.to_json(),
                }
                try:
                    row |= _measured(problem, spec, timer)
                except AutotuneError as error:
                    failed += 1
                    row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
                    print(f"FAILED {problem}: {row['error']}", flush=True)
                file.write(json.dumps(row) + "\n")
                file.flush()
    return failed


def _measured(problem: Problem, spec: DeviceSpec, timer: Timer) -> dict[str, Any]:
    found = looked_up(problem, spec)
    ms = timer(found)
    timed = {} if ms is None else {"ms": ms}
    return {**timed, "ideal_ms": ideal_ms(problem, spec), "answer": found.answer, "candidate": found.candidate.key}


_answers: dict[tuple[Problem, DeviceSpec], Best] = {}


def looked_up(problem: Problem, spec: DeviceSpec) -> Best:
    """What the shipped winners and starts answer."""
    if (problem, spec) not in _answers:
        _answers[problem, spec] = _answer(problem, spec)
    return _answers[problem, spec]


def _answer(problem: Problem, spec: DeviceSpec) -> Best:
    asked: dict[str, Any] = problem.fields
    return best(problem.op, db="/nowhere/none.db", device=spec, **asked)


def _answer_alone(problem: Problem, spec: DeviceSpec) -> dict[str, Any] | None:
    """An answer for another process, which knows its family's template by name; None where there is none."""
    try:
        found = _answer(problem, spec)
    except AutotuneError:
        return None  # who asks again is told why
    return {field.name: getattr(found, field.name) for field in fields(found) if field.name != "template"}


def look_up_all(problems: Sequence[Problem], spec: DeviceSpec, pool: Executor) -> None:
    """Look up those that have not been, a process a core: each takes a tenth of a second there."""
    left = [problem for problem in problems if (problem, spec) not in _answers]
    for problem, found in zip(left, pool.map(_answer_alone, left, repeat(spec), chunksize=4), strict=True):
        if found is not None:
            template = find_template(problem.op, found["candidate"].template)
            _answers[problem, spec] = Best(**found, template=template)


def estimated(found: Best) -> float | None:
    """What the look-up expects; the time that is kept where it is exact."""
    return found.ms if found.ms is not None else found.expected_ms


def gpu_timer() -> Timer:
    """Times look-ups on the first GPU; builds serve many problems, as lengths and counts are arguments of kernels."""
    from autotune.bench.torch_lab import open_lab
    from autotune.devices.driver import cuda_driver

    lab, driver = open_lab("cuda"), cuda_driver()

    def timer(found: Best) -> float:
        with lab.emptied():
            ours = Ours(lab.torch, lambda _: found, driver, lab.index, in_place=True)
            given = {
                tensor.name: _zeros(lab.torch, tensor) for tensor in get_op(found.problem.op).tensors(found.problem)
            }
            kernel = ours.kernel(found.problem)
            return lab.kernel(lambda: kernel(**given), _BUDGET).median_ms

    return timer


def _zeros(torch: Any, tensor: TensorSpec) -> Any:
    """As long in time as any other values."""
    storage = torch.zeros(tensor.extent, dtype=torch_dtype(torch, tensor.dtype), device="cuda")
    return storage.as_strided(tensor.shape, tensor.strides, tensor.offset)


def rows_in(report: Path) -> list[dict[str, Any]]:
    """The lines of a report; none where there is no file."""
    return [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()] if report.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep, print the jumps, draw. Returns how many problems failed."""
    parser = argparse.ArgumentParser(description="find cliffs in what look-ups answer")
    parser.add_argument("--out", type=Path, required=True, help="folder; what is there already is kept")
    parser.add_argument("--estimate", default=None, help="a GPU's name: estimates for it, nothing is run")
    parser.add_argument("--sizes", default="64,128", help="head sizes, comma-separated")
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--total", type=float, default=None, help="seconds after which no problem is begun")
    parser.add_argument("--plot", type=Path, default=None, help="draw a .svg, .png or .pdf file (extra: plot)")
    options = parser.parse_args(arguments)
    if options.plot is not None:
        check_plot(options.plot)
    options.out.mkdir(parents=True, exist_ok=True)
    spec = gpu(options.estimate) if options.estimate else present_gpu(0)
    if spec is None:
        raise SystemExit("error: there is no NVIDIA GPU here; --estimate h200 estimates for one")
    report = options.out / ("estimates.jsonl" if options.estimate else "times.jsonl")
    wanted = list(sweeps([int(text) for text in options.sizes.split(",")], options.dtype))
    timer = estimated if options.estimate else gpu_timer()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:

        def prepare(some: Sequence[Problem]) -> None:
            look_up_all(some, spec, pool)
            if not options.estimate:
                build_all(some, lambda problem: looked_up(problem, spec))

        failed = run(wanted, spec, timer, report, options.total, prepare)
    rows = rows_in(report)
    found = jumps(rows)
    kind = "estimated, not measured," if options.estimate else "measured"
    print("\n".join([*map(str, found), f"{len(found)} jumps among {len(rows)} problems, {kind} for {spec.title}"]))
    if options.plot is not None:
        import matplotlib as mpl

        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "cliffs"}):  # small, and the same every time
            save_plot(draw(rows, f"Look-ups alone, {kind} for {spec.title}: {options.dtype}"), options.plot)
    return failed


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
