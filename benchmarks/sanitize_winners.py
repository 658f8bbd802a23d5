"""compute-sanitizer over every winner: memcheck, racecheck, initcheck and synccheck of its exported program.

    python -m benchmarks.sanitize_winners [--out sanitize] [--limit 110] [--tools memcheck,racecheck] [FILE.jsonl …]
    python -m benchmarks.sanitize_winners --out sanitize --tools ""     build the programs alone, without a GPU

Each distinct candidate is exported for a small problem that still has whole and partial tiles, masked and unmasked
ones, several blocks, batches and grouped heads; built with nvcc, unless OUT/programs has it from before; and run by
itself (its own check must pass) and under each tool, several at a time. Needs a GPU. Exits with 1 if anything is found.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path

from autotune.answers.best import Best
from autotune.answers.export_text import export_text
from autotune.compilers.toolchain import find_nvcc
from autotune.core.errors import AutotuneError
from autotune.core.problem import Problem
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.present import gpu_count
from autotune.store.json_lines import Line
from benchmarks.merge_winners import is_valid
from benchmarks.rows import Row
from benchmarks.spills import winners

CHECK = "check"
"""The program by itself."""

TOOLS = (CHECK, "memcheck", "initcheck", "synccheck", "racecheck")
"""The slow one last: where time is short, of the others all are run."""

UNINITIALISED = "AUTOTUNE_UNINITIALISED"
"""Set for initcheck: the program then leaves its memory as it gets it, in place of filling it with NaN."""

_REPEATS = "while (times.size() < 20 || (times.size() < 500 && seconds() < 1.0)) {"
_FILL = 'require(cudaMemset(data, 0xff, n * sizeof(T)), "cudaMemset");'
_IMAGE = """std::vector<T> image = download();
        parallel(layout.elements(), [&](long long i) { image[layout.place(i)] = narrow"""
_REPLACED = {
    _REPEATS: "while (times.size() < 2) {",
    _FILL: f'if (std::getenv("{UNINITIALISED}") == nullptr) {_FILL}',
    _IMAGE: _IMAGE.replace(
        "= download();", f'= std::getenv("{UNINITIALISED}") ? std::vector<T>(elements) : download();'
    ),
}
_ARRIVALS = {
    "if (threadIdx.x % 32 == 0) mbarrier_arrive(": "mbarrier_arrive(",
    "if (opaque_thread() % 32 == 0) mbarrier_arrive(": "mbarrier_arrive(",
    "+ stage), readers);": "+ stage), 32 * readers);",
    "+ 8 * stage, writers);": "+ 8 * stage, 32 * writers);",
    "mbarrier_init(added(at), SHARERS);": "mbarrier_init(added(at), 32 * SHARERS);",
}
"""What racecheck does not follow: it counts what a thread did before an arrival of its own, not what the warp's barrier
has put before that of its first lane. So every lane arrives where one does for its warp."""

_SANITIZER = (
    "compute-sanitizer",
    "/usr/local/cuda/bin/compute-sanitizer",
    "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
)
_FINDINGS_EXIT = 42
_KEYS = (0, 1041, 4113)
_KEY_HEADS = (1, 3, 5, 9, 17, 2, 4, 8, 16, 32)
_RUN_LIMIT_S = 100.0


@dataclass
class Subject:
    """A distinct candidate: the winners that use it, its small problem, and of each tool "ok" or what is wrong."""

    line: Line
    labels: list[str]
    problem: Problem
    verdicts: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def clean(self, tools: Iterable[str]) -> bool:
        """Whether it was built and each of the tools ran and found nothing."""
        return all(verdict == "ok" for verdict in self.verdicts.values()) and set(tools) <= self.verdicts.keys()


def subjects(lines: Iterable[Line]) -> list[Subject]:
    """Distinct candidates among winners. Those that are no longer valid are left out."""
    found: dict[tuple[str, str, str], Subject] = {}
    for line in filter(is_valid, lines):
        problem = small_problem(line)
        label = Row(line.problem).label
        key = (line.candidate.key, problem.op, problem.key)
        found.setdefault(key, Subject(line, [], problem)).labels.append(label)
    return list(found.values())


def small_problem(line: Line) -> Problem:
    """B=2, twice as many query heads as key heads, and two largest tiles and a bit in either length.

    As few key heads as the configuration is valid with: blocks that follow one another by groups of heads want more,
    and whole groups. More keys where they are split more often than that; few queries, and as many heads a key head as
    the winner's problem has, where heads are packed.
    """
    T = 2 * largest_tile(line.candidate.config) + 17
    group = line.problem.integer("NH") // line.problem.integer("NH_kv")
    queries = ((T, 2), (min(T, line.problem.integer("T")), group))
    problems = [
        line.problem.replace(B=2, NH=share * heads, NH_kv=heads, T=rows, T_kv=max(T, keys))
        for (rows, share), keys, heads in product(queries, _KEYS, _KEY_HEADS)
    ]
    template, config = find_template(line.problem.op, line.candidate.template), line.candidate.config
    valid = (problem for problem in problems if Space(template, problem, line.identity.spec).why_not(config) is None)
    return next(valid, problems[0])


def largest_tile(config: Mapping[str, object]) -> int:
    """Rows or columns that one block takes at a time, by the parameters' names."""
    sizes = [value for name, value in config.items() if name.startswith("BLOCK_") and isinstance(value, int)]
    return max(sizes, default=64)


def program_text(subject: Subject) -> str:
    """The exported file, with few repeats, and memory that may be left as it is.

    Raises:
        ValueError: the harness no longer has the lines that are changed.
    """
    line = subject.line
    template = find_template(line.problem.op, line.candidate.template)
    found = Best(
        "default", "none", None, subject.problem, line.identity.spec, line.candidate, template=template,
    )  # fmt: skip
    return instrumented(export_text(found, "program.cu", main=True))


def instrumented(text: str) -> str:
    """An exported file as the tools are to run it. Raises as `program_text`."""
    for old, new in _REPLACED.items():
        if text.count(old) != 1:
            raise ValueError(f"an exported file has {text.count(old)} times: {old.splitlines()[0]}")
        text = text.replace(old, new)
    for old, new in _ARRIVALS.items():
        text = text.replace(old, new)
    return text


def build(subject: Subject, folder: Path) -> Path:
    """The program, built with line numbers.

    Raises:
        subprocess.CalledProcessError: nvcc refuses it.
    """
    text = program_text(subject)
    folder /= sha256(text.encode()).hexdigest()[:16]
    if (folder / "program").exists():
        return folder / "program"
    part = folder.with_suffix(".part")
    part.mkdir(parents=True, exist_ok=True)
    (part / "program.cu").write_text(text, encoding="utf-8")
    command = text.partition("// compile: ")[2].partition("\n")[0].split()
    nvcc = str(find_nvcc(subject.line.identity.spec.arch).path.absolute())
    subprocess.run([nvcc, *command[1:], "-lineinfo"], cwd=part, check=True, capture_output=True, text=True)
    part.rename(folder)
    return folder / "program"


def run(program: Path, tool: str, sanitizer: str, limit_s: float = _RUN_LIMIT_S, gpu: str | None = None) -> str:
    """ "ok", or the first lines that say what is wrong. `gpu`: as CUDA_VISIBLE_DEVICES names it."""
    command = [str(program)]
    environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
    if tool != CHECK:
        command = [sanitizer, "--tool", tool, "--error-exitcode", str(_FINDINGS_EXIT), *command]
    if tool == "initcheck":
        environment[UNINITIALISED] = "1"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit_s, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end after {limit_s:.0f} s"
    except OSError as error:
        return f"cannot run {command[0]}: {error.strerror}"
    return verdict(tool, done.returncode, done.stdout + done.stderr)


def verdict(tool: str, status: int, output: str) -> str:
    """What a run's output and exit status say: the tool must have come to its summary, and that must be 0."""
    found = re.findall(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", output)
    counts = [int(errors or hazards) for errors, hazards in found]
    finished = tool == CHECK or len(counts) > 0
    if status == 0 and finished and not any(counts) and re.search(r"^PASS$", output, re.MULTILINE):
        return "ok"
    said = [line.strip("= ") for line in output.splitlines() if re.search(r"[Ee]rror|[Hh]azard|WRONG|FAIL", line)]
    return f"status {status}: " + " / ".join(list(dict.fromkeys(said))[:4])[:400]


def examine(found: Sequence[Subject], folder: Path, tools: Sequence[str], jobs: int, limit_s: float) -> None:
    """Build and run all, several at a time; what is not begun within the limit is said to be left out."""
    start = time.monotonic()
    sanitizer = next((path for path in _SANITIZER if shutil.which(path)), "compute-sanitizer")

    def prepare(subject: Subject) -> Path | None:
        try:
            return build(subject, folder)
        except subprocess.CalledProcessError as error:
            subject.verdicts[CHECK] = f"nvcc: {str(error.stderr).strip()[:300]}"
        except (ValueError, AutotuneError) as error:
            subject.verdicts[CHECK] = str(error)
        return None

    gpus = visible_gpus()

    def go(numbered: tuple[int, tuple[Subject, Path, str]]) -> None:
        number, (subject, program, tool) = numbered
        began = time.monotonic()
        left = limit_s - (began - start)
        gpu = gpus[number % len(gpus)]
        subject.verdicts[tool] = run(program, tool, sanitizer, left, gpu) if left > 0 else "not run: the time was up"
        subject.seconds[tool] = round(time.monotonic() - began, 1)

    with ThreadPoolExecutor(jobs) as pool:
        programs = list(pool.map(prepare, found))
        print(f"built {len(found)} programs in {time.monotonic() - start:.0f} s", flush=True)
        built = [(subject, program) for subject, program in zip(found, programs, strict=True) if program is not None]
        for tool in tools:
            list(pool.map(go, enumerate((subject, program, tool) for subject, program in built)))
            print(f"{tool} after {time.monotonic() - start:.0f} s", flush=True)


def visible_gpus() -> list[str]:
    """GPUs to spread the programs over, as CUDA_VISIBLE_DEVICES names them."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named or [str(number) for number in range(max(1, gpu_count()))]


def table(found: Iterable[Subject]) -> str:
    """A line a candidate, in Markdown; then what was found, in full."""
    lines = [f"| winner of | family | T | {' | '.join(TOOLS)} |", "|" + "---|" * (3 + len(TOOLS))]
    details = []
    for subject in found:
        more = f" and {len(subject.labels) - 1} more" if len(subject.labels) > 1 else ""
        cells = [_cell(subject.verdicts.get(name)) for name in TOOLS]
        family = subject.line.candidate.template
        lines.append(f"| {subject.labels[0]}{more} | {family} | {subject.problem['T']} | {' | '.join(cells)} |")
        wrong = {name: text for name, text in subject.verdicts.items() if text != "ok"}
        details += [f"{subject.labels[0]}: {subject.line.candidate.key}: {n}: {text}" for n, text in wrong.items()]
    return "\n".join([*lines, *details])


def _cell(text: str | None) -> str:
    if text is None or text == "ok" or text.startswith(("not run", "no end")):
        return text or ""
    return "FOUND"


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine, write OUT/sanitize.json and OUT/sanitize.md, print. Returns how many candidates are not clean."""
    parser = argparse.ArgumentParser(description="compute-sanitizer over every winner")
    parser.add_argument("files", type=Path, nargs="*", help="winners as JSON lines [default: those shipped]")
    parser.add_argument("--out", type=Path, default=Path("sanitize"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which nothing goes on")
    parser.add_argument("--tools", default=",".join(TOOLS), help="only these, comma-separated")
    parser.add_argument("--most", type=int, default=None, help="only this many candidates")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found = subjects(winners(options.files))[: options.most]
    tools = [tool for tool in TOOLS if tool in options.tools.split(",")]
    examine(found, options.out / "programs", tools, options.jobs, options.limit)
    bad = [subject for subject in found if not subject.clean(tools)]
    records = [
        {"winners": s.labels, "candidate": s.line.candidate.key, "problem": s.problem.key, "verdicts": s.verdicts,
         "seconds": s.seconds}
        for s in found
    ]  # fmt: skip
    (options.out / "sanitize.json").write_text(json.dumps(records, indent=1), encoding="utf-8")
    summary = f"{len(found)} candidates, {len(bad)} not clean, {time.monotonic() - start:.0f} s"
    text = f"{table(found)}\n\n{summary}\n"
    (options.out / "sanitize.md").write_text(text, encoding="utf-8")
    print(text)
    return len(bad)


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
