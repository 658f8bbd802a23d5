"""How long a space of a million raw combinations takes to filter. Run: python -m benchmarks.space_filter"""

import statistics
import tempfile
import time
from pathlib import Path

from autotune.families.space import Space
from autotune.families.template import load_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

FRONT = """summary = "a million combinations"
op = "forward"
[params]
{params}
[derived]
TILE = "P0 * P1 + P2"
[[constraints]]
expr = "TILE % 2 == 0 and (P3 if P4 > 2 else P5) in [1, 2, 4, 8]"
why = "an expression over all parameters at once"
[[launch]]
kernel = "k"
grid = ["ceil_div(T, P0)", "NH", "B"]
block = ["32 * P1"]
smem = "TILE * P5 * sizeof(dtype) * 64"
args = ["q"]
"""


def main() -> None:
    """Print the median of five filterings."""
    params = "\n".join(f"P{i} = {list(range(1, 11))}" for i in range(6))
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.cu.j2"
        path.write_text("{#---\n" + FRONT.format(params=params) + "---#}\n", encoding="utf-8")
        template = load_template(path)
        for _ in range(5):
            start = time.perf_counter()
            space = Space(template, get_op("forward").problem(), gpu("h200"))
            valid = space.size
            seconds.append(time.perf_counter() - start)
    print(f"{space.raw_size:,} raw combinations, {valid:,} valid: median {statistics.median(seconds):.3f} s of 5")


if __name__ == "__main__":
    main()
