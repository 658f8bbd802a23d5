"""Record spaces of our own on this GPU, so that anyone can replay searches of them.

    python -m benchmarks.record_space --out recording --total 540
    python -m benchmarks.record_space --out recording --random 600 --searched 200 --total 280
    autotune replay benchmarks/data/space_*.json.gz --seeds 20 --in-flight 1,20

Of each op, at the default problem and at HS=128, T=4096, random configurations first, then those that a search asks
which knows them. Every one is verified and timed to the end, slow ones too. About four minutes a thousand. The stages
come in the order of their worth: the default problem's random configurations of both ops, then their searched ones,
then the other problem's. What the time does not suffice for is done by the same command run again; after each stage
what is there is written to --data, as Kernel Tuner's caches, which `autotune replay` reads.
"""

import argparse
import gzip
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import autotune
from autotune.devices.recorded import of_lines
from autotune.store import Store, open_store
from autotune.store.transfer import export_lines
from autotune.tuning import lane
from benchmarks.estimate_measure import NEVER

DATA = Path(__file__).parent / "data"

_LEAST_S = 5.0  # less is not worth starting for


@dataclass(frozen=True)
class Space:
    """One family at one problem."""

    op: str
    family: str
    HS: int
    T: int

    @property
    def file(self) -> str:
        return f"space_{self.op}_{self.family}_hs{self.HS}_t{self.T}.json.gz"


SPACES = tuple(
    Space(op, "flash_mma", HS, T) for HS, T in ((64, 1024), (128, 4096)) for op in ("forward", "backward")
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """Configurations of one space up to so many, those of earlier stages included."""

    space: Space
    sampler: str
    trials: int


def stages(spaces: Sequence[Space], random: int, searched: int) -> list[Stage]:
    """What is recorded, the most valuable first: a problem's random configurations before any that are searched.

    A random share of a space says what is in it, and is what samplers are to be compared on; the searched ones say how
    fast its best are.
    """
    found = []
    for problem in dict.fromkeys((space.HS, space.T) for space in spaces):
        alike = [space for space in spaces if problem == (space.HS, space.T)]
        found += [Stage(space, "random", random) for space in alike]
        found += [Stage(space, "parzen", random + searched) for space in alike if searched]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Go on with what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the database, to go on from")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the recordings")
    parser.add_argument("--total", type=float, default=540.0, help="seconds")
    parser.add_argument("--random", type=int, default=3000, help="random configurations of each space")
    parser.add_argument("--searched", type=int, default=1000, help="configurations that are searched after them")
    parser.add_argument("--space", action="append", help="such as forward/flash_mma [default: all]")
    parser.add_argument("--device", default=None)
    parser.add_argument("--target", default=None)
    parser.add_argument("--jobs", type=int, default=None, help="builds at a time")
    options = parser.parse_args(arguments)
    lane.GIVE_UP_FACTOR = NEVER
    end = time.monotonic() + options.total
    options.out.mkdir(parents=True, exist_ok=True)
    database = options.out / "space.sqlite"
    asked = [space for space in SPACES if not options.space or f"{space.op}/{space.family}" in options.space]
    with open_store(database) as store:
        for stage in stages(asked, options.random, options.searched):
            space, left = stage.space, end - time.monotonic()
            if left >= _LEAST_S:
                result = autotune.search(
                    space.op, template=space.family, HS=space.HS, T=space.T, sampler=stage.sampler, seed=1,
                    trials=stage.trials, timeout=left, device=options.device, target=options.target,
                    jobs=options.jobs, db=database,
                )  # fmt: skip
                said = ", ".join(f"{outcome.value} {count}" for outcome, count in sorted(result.outcomes.items()))
                print(f"{space.file}: {stage.sampler} up to {stage.trials}: {said}", flush=True)
            print(f"{space.file}: {write(store, space, options.data)} configurations written", flush=True)


def write(store: Store, space: Space, folder: Path) -> int:
    """Write what is recorded of a space, if anything; gives the number of configurations."""
    fields = {"HS": space.HS, "T": space.T}
    lines = [
        line for line in export_lines(store, op=space.op, device=None, winners_only=False)
        if line.record == "measurement" and line.candidate.template == space.family
        and all(line.problem.fields[name] == value for name, value in fields.items())
    ]  # fmt: skip
    if not lines:
        return 0
    recording = of_lines(lines, "the database")
    folder.mkdir(parents=True, exist_ok=True)
    text = recording.text("kernel-tuner").encode()
    (folder / space.file).write_bytes(gzip.compress(text, mtime=0))
    return len(recording.results)


if __name__ == "__main__":
    main()
