"""How long a sampler takes to propose a candidate, by the number of trials that it knows.

    python -m benchmarks.ask_overhead [--samplers parzen,tpe] [--trials 100,1000,10000] [--spaces wide] [--json]

Spaces: `wide`, two families with six parameters each and 2 x 600,000,000 raw combinations, of which two thirds are
valid, drawn without enumerating them; `OP/FAMILY` (such as backward/flash_mma), one that ships, at its op's default
problem on an H200. Trials have times by chance, or failed (a tenth). Every ask is told a time before the next. Wall and
processor time, medians of 15 asks; a fit of the weights, every so many trials, is seen in the mean and not in them.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autotune.families.space import Space
from autotune.families.template import Template, find_template, load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.tuning.joint_space import Families, Family
from autotune.tuning.samplers import make_strategy

_ASKS = 15

_FAMILY = """{{#---
summary = "a wide space"
op = "forward"
source = "none"
[params]
A = {a}
B = {b}
C = {b}
D = {b}
E = {b}
F = {b}
[[constraints]]
expr = "(A + B) % 3 != 0"
why = "a third is not valid"
[[launch]]
kernel = "k"
grid = ["T"]
block = ["32"]
args = ["q"]
---#}}
extern "C" __global__ void k(const float* q) {{}}
"""


def families(name: str) -> Families:
    """The space of that name."""
    if name == "wide":
        return _wide()
    op, _, family = name.partition("/")
    template = find_template(op, family)
    space = Space(template, get_op(op).problem(), gpu("h200"))
    return Families([_family(template, space)])


def _family(template: Template, space: Space) -> Family:
    values = {parameter.name: parameter.values for parameter in template.parameters}
    return Family(template.name, template.hash, values, template.defaults, space)


def _wide() -> Families:
    made = []
    with TemporaryDirectory() as folder:
        for name in ("wide_one", "wide_two"):
            path = Path(folder, f"{name}.cu.j2")
            path.write_text(_FAMILY.format(a=list(range(192)), b=list(range(20))), encoding="utf-8")
            template = load_template(path)
            made.append(_family(template, Space(template, get_op("forward").problem(), gpu("h200"))))
    return Families(made)


def measure(joint: Families, sampler: str, trials: int) -> dict[str, Any]:
    """Milliseconds of an ask after so many trials."""
    strategy = make_strategy(sampler, joint, lambda _: False, 0)
    rng = np.random.default_rng(0)
    for family in joint:
        for row in family.space.draw(rng, trials // len(joint)).tolist():
            config = {name: values[i] for (name, values), i in zip(family.parameters.items(), row, strict=True)}
            strategy.add(family.candidate(config), None if rng.random() < 0.1 else float(rng.normal()))
    wall, processor = [], []
    for _ in range(_ASKS + 1):  # the first reads all trials
        begin, used = time.perf_counter(), time.process_time()
        proposal = strategy.ask()
        wall.append(1e3 * (time.perf_counter() - begin))
        processor.append(1e3 * (time.process_time() - used))
        if proposal is None:
            break
        strategy.tell(proposal, float(rng.normal()))
    return {
        "sampler": sampler, "trials": trials,
        "ask_ms": statistics.median(wall[1:]), "ask_cpu_ms": statistics.median(processor[1:]),
        "mean_cpu_ms": statistics.fmean(processor[1:]), "first_ask_ms": wall[0],
    }  # fmt: skip


def _numbers(text: str) -> Iterator[int]:
    return map(int, text.split(","))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samplers", default="parzen,tpe")
    parser.add_argument("--trials", default="100,1000,10000")
    parser.add_argument("--spaces", default="wide,backward/flash_mma")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name, sampler in itertools.product(options.spaces.split(","), options.samplers.split(",")):
        joint = families(name)
        for trials in _numbers(options.trials):
            row = {"space": name, "valid": joint.size, **measure(joint, sampler, trials)}
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                print(
                    f"{name} ({joint.size:,} valid) {sampler:8} {trials:6} trials: {row['ask_ms']:8.1f} ms an ask, "
                    f"{row['ask_cpu_ms']:.1f} ms of processor time ({row['mean_cpu_ms']:.1f} in the mean); "
                    f"the first {row['first_ask_ms']:.0f} ms", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
