"""How long a sampler takes to propose a candidate, by the number of trials that it knows.

    python -m benchmarks.ask_overhead [--samplers parzen,tpe] [--trials 100,1000,10000] [--json]

Two families with six parameters each and 2 x 600,000,000 raw combinations, of which two thirds are valid, drawn without
enumerating them. Every ask is told a time before the next. Wall and processor time, medians of 15 asks.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autotune.families.space import Space
from autotune.families.template import load_template
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


def families() -> Families:
    """The two."""
    made = []
    with TemporaryDirectory() as folder:
        for name in ("wide_one", "wide_two"):
            path = Path(folder, f"{name}.cu.j2")
            path.write_text(_FAMILY.format(a=list(range(192)), b=list(range(20))), encoding="utf-8")
            template = load_template(path)
            space = Space(template, get_op("forward").problem(), gpu("h200"))
            values = {parameter.name: parameter.values for parameter in template.parameters}
            made.append(Family(name, template.hash, values, template.defaults, space))
    return Families(made)


def measure(joint: Families, sampler: str, trials: int) -> dict[str, Any]:
    """Milliseconds of an ask after so many trials."""
    strategy = make_strategy(sampler, joint, lambda _: False, 0)
    rng = np.random.default_rng(0)
    for family in joint:
        for row in family.space.draw(rng, trials // 2).tolist():
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
        "ask_ms": statistics.median(wall[1:]), "ask_cpu_ms": statistics.median(processor[1:]), "first_ask_ms": wall[0],
    }  # fmt: skip


def _numbers(text: str) -> Iterator[int]:
    return map(int, text.split(","))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samplers", default="parzen,tpe")
    parser.add_argument("--trials", default="100,1000,10000")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    joint = families()
    for sampler in options.samplers.split(","):
        for trials in _numbers(options.trials):
            row = measure(joint, sampler, trials)
            if options.json:
                print(json.dumps(row))
            else:
                print(
                    f"{sampler:8} {trials:6} trials: {row['ask_ms']:8.1f} ms an ask, "
                    f"{row['ask_cpu_ms']:.1f} ms of processor time; the first {row['first_ask_ms']:.0f} ms"
                )


if __name__ == "__main__":
    main()
