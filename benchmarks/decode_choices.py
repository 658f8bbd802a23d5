"""What look-ups answer for steps of decoding on a GPU, and how much of it that keeps busy; nothing is run.

    python -m benchmarks.decode_choices [--gpu h200] [--sizes 64,128] [--dtype bf16] [--T 1]

For B 1, 16, 128, 32 query heads on 32, 8, 4 and 1 key heads, 4096 and 32768 keys: blocks of the launch that reads the
keys, how many an SM has room for, waves of them, kilobytes of tiles that an SM has for keys on their way, and the time
that the bytes take at the rate of a copy (4.3 TB/s on an H200).
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product

from autotune.answers.best import Best
from autotune.answers.lookup import best
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op

_COPY_SHARE = 4.3 / 4.8  # of the bandwidth that is published for an H200
HEAD = (
    "HS",
    "B",
    "NH_kv",
    "T_kv",
    "family",
    "rows",
    "keys",
    "splits",
    "blocks",
    "fit",
    "waves",
    "KB an SM",
    "bytes, ms",
)


def choices(spec: DeviceSpec, sizes: Sequence[int], dtype: str, T: int) -> Iterator[Best]:
    """The answers, without a database of one's own."""
    for HS, B, NH_kv, T_kv in product(sizes, (1, 16, 128), (32, 8, 4, 1), (4096, 32768)):
        yield best(
            "forward", device=spec, db="/nowhere/none.db", B=B, NH=32, NH_kv=NH_kv, T=T, T_kv=T_kv, HS=HS, dtype=dtype,
            causal=False,
        )  # fmt: skip


def row(found: Best) -> tuple[str, ...]:
    """A line of the table."""
    spec, problem, config = found.device, found.problem, found.config
    launch = max(found.plan.launches, key=lambda launch: launch.smem)
    fit = max(1, spec.shared_memory_per_sm // (launch.smem + spec.reserved_shared_memory))
    per_sm = launch.blocks / spec.sm_count
    bytes_ms = get_op("forward").nbytes(problem) / (_COPY_SHARE * spec.bandwidth_gbs * 1e6)
    numbers = (*(problem[name] for name in ("HS", "B", "NH_kv", "T_kv")), found.candidate.template, config["BLOCK_M"])
    return (
        *map(str, numbers), str(config["BLOCK_N"]), str(config.get("SPLIT", 1)), str(launch.blocks), str(fit),
        f"{per_sm / fit:.2f}", f"{min(per_sm, fit) * launch.smem / 1024:.0f}", f"{bytes_ms:.4f}",
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="what look-ups answer for steps of decoding")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--sizes", default="64,128")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--T", type=int, default=1)
    options = parser.parse_args(arguments)
    sizes = [int(text) for text in options.sizes.split(",")]
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for found in choices(gpu(options.gpu), sizes, options.dtype, options.T):
        print("| " + " | ".join(row(found)) + " |")


if __name__ == "__main__":
    main()
