"""Problem options that the benchmarks share: each takes a list, all combinations are run."""

import argparse
import itertools
from collections.abc import Iterator

from autotune.core.problem import Problem
from autotune.ops.attention import FIELDS
from autotune.ops.registry import get_op


def add_problem_options(parser: argparse.ArgumentParser) -> None:
    """`--op` and one option a field of the attention ops, comma-separated."""
    parser.add_argument("--op", default="forward,backward")
    for field in FIELDS:
        parser.add_argument(f"--{field.name.replace('_', '-')}", dest=field.name, default=None)


def problems(options: argparse.Namespace) -> Iterator[Problem]:
    """The product over all lists given."""
    given = {f.name: getattr(options, f.name).split(",") for f in FIELDS if getattr(options, f.name) is not None}
    for op in options.op.split(","):
        for values in itertools.product(*given.values()):
            yield get_op(op).problem(**dict(zip(given, values, strict=True)))
