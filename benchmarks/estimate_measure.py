"""Time random configurations of families to the end, slow ones too: what estimates are judged by.

    CUDA_VISIBLE_DEVICES=0 python -m benchmarks.estimate_measure --shard 0/2 --total 140 --out measured0.jsonl
    CUDA_VISIBLE_DEVICES=1 python -m benchmarks.estimate_measure --shard 1/2 --total 140 --out measured1.jsonl
    python -m benchmarks.estimate_quality measured0.jsonl measured1.jsonl --samples samples.jsonl.gz

Every family is searched at random at the first length, then, with the same configurations, at the others; every
candidate is verified. What the time given does not suffice for is left out and said.
"""

import argparse
import itertools
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import autotune
from autotune.store import open_store
from autotune.store.transfer import export_file
from autotune.tuning import lane

FAMILIES = (
    ("forward", "flash_mma", "fp16"), ("backward", "flash_mma", "fp16"), ("backward", "flash_simt", "fp32"),
    ("forward", "flash_simt", "fp32"), ("forward", "unfused", "fp16"), ("backward", "unfused", "fp16"),
)  # fmt: skip
"""Op, family and dtype, so that every second of them takes about half of the time."""

NEVER = 1e9
"""In place of `lane.GIVE_UP_FACTOR`: a ranking needs the times of slow candidates, too."""


def main() -> None:
    """Measure a shard."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shard", default="0/1", help="which of how many parts of the families")
    parser.add_argument("--T", default="1024,2048", help="lengths")
    parser.add_argument("--family", action="append", help="such as forward/flash_mma [default: all of them]")
    parser.add_argument("--trials", type=int, default=70, help="candidates of each family and length")
    parser.add_argument("--total", type=float, default=600.0, help="seconds")
    parser.add_argument("--jobs", type=int, default=None, help="builds at a time")
    parser.add_argument("--out", type=Path, required=True, help="where the measurements go")
    options = parser.parse_args()
    lane.GIVE_UP_FACTOR = NEVER
    part, parts = map(int, options.shard.split("/"))
    end = time.monotonic() + options.total
    lengths = [int(text) for text in options.T.split(",")]
    families = [row for row in FAMILIES if not options.family or f"{row[0]}/{row[1]}" in options.family]
    with TemporaryDirectory() as folder:
        database = f"{folder}/measured.sqlite"
        for T, (op, family, dtype) in itertools.product(lengths, families[part::parts]):
            _search(op, family, dtype, T, options.trials, end, options.jobs, database)
            with open_store(database) as store:
                export_file(store, options.out)


def _search(op: str, family: str, dtype: str, T: int, trials: int, end: float, jobs: int | None, database: str) -> None:
    left = end - time.monotonic()
    if left < 1.0:
        print(f"{op} {family} {dtype} T={T}: no time left", flush=True)
        return
    started = time.monotonic()
    result = autotune.search(
        op, template=family, T=T, dtype=dtype, sampler="random", seed=1, trials=trials, timeout=left, jobs=jobs,
        db=database,
    )  # fmt: skip
    said = ", ".join(f"{outcome.value} {count}" for outcome, count in sorted(result.outcomes.items()))
    print(f"{op} {family} {dtype} T={T}: {time.monotonic() - started:.0f} s, {said}", flush=True)


if __name__ == "__main__":
    main()
