"""Would a search on a GPU find the best sooner if estimates chose what to try first? Replayed from measurements.

    python -m benchmarks.estimate_order benchmarks/data/estimate_h200.jsonl.gz

For each problem the recorded candidates of all families are tried in some order, until one is within 5 % of the
fastest: at random; the families' defaults first; by estimate; and as a search could do it: the defaults, then the 5
best by estimate of 20 random ones, then the rest at random. Random orders are averaged over 500 shuffles.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from statistics import mean

from autotune.families.template import find_template
from benchmarks.estimate_samples import Group, Sample, load_samples

SHUFFLES, DRAWN, CHOSEN, NEAR = 500, 20, 5, 1.05

Problem = tuple[str, str, int]
"""Op, dtype and T."""


def trials(order: Iterable[Sample], target: float) -> int:
    """How many are tried until one takes at most `target` milliseconds."""
    return next(number for number, sample in enumerate(order, 1) if sample.ms <= target)


def defaults(samples: Sequence[Sample]) -> list[Sample]:
    """Of each family the candidate that differs in the fewest parameters from its default."""
    groups: dict[Group, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(sample)
    return [min(members, key=_changes) for members in groups.values()]


def _changes(sample: Sample) -> int:
    wanted = dict(find_template(sample.group[0], sample.group[1]).front.defaults)
    return sum(sample.config.get(name) != value for name, value in wanted.items())


def compare(samples: Sequence[Sample], rng: Random) -> tuple[float, float, float, float]:
    """Trials by each of the four orders."""
    target = NEAR * min(sample.ms for sample in samples)
    ranked = sorted(samples, key=lambda sample: sample.estimate().ms)
    place = {id(sample): number for number, sample in enumerate(ranked)}
    first = defaults(samples)
    taken = {id(sample) for sample in first}
    counts: list[tuple[int, int, int]] = []
    for _ in range(SHUFFLES):
        shuffled = rng.sample(samples, len(samples))
        rest = [sample for sample in shuffled if id(sample) not in taken]
        best = sorted(rest[:DRAWN], key=lambda sample: place[id(sample)])[:CHOSEN]
        mixed = [*first, *best, *rest]
        counts.append((trials(shuffled, target), trials([*first, *rest], target), trials(_once(mixed), target)))
    at_random, by_default, mixed_trials = (mean(column) for column in zip(*counts, strict=True))
    return at_random, by_default, float(trials(ranked, target)), mixed_trials


def _once(samples: Iterable[Sample]) -> Iterable[Sample]:
    return {id(sample): sample for sample in samples}.values()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path)
    options = parser.parse_args()
    problems: dict[Problem, list[Sample]] = defaultdict(list)
    for sample in load_samples(options.samples):
        problems[sample.group[0], sample.group[2], sample.T].append(sample)
    rng = Random(0)
    print(
        "| op | dtype | T | candidates | random | defaults first | by estimate | defaults, then 5 of 20 by estimate |"
    )
    print("|---|---|---|---|---|---|---|---|")
    rows = [(problem, len(samples), compare(samples, rng)) for problem, samples in sorted(problems.items())]
    for (op, dtype, T), n, found in rows:
        print(f"| {op} | {dtype} | {T} | {n} | " + " | ".join(f"{trials:.1f}" for trials in found) + " |")
    means = [mean(found[i] for _, _, found in rows) for i in range(4)]
    print("| mean | | | | " + " | ".join(f"{value:.1f}" for value in means) + " |")


if __name__ == "__main__":
    main()
