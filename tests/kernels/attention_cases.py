"""Problems on which attention kernels go wrong when they are wrong, and how a family is judged on one of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.compilers.cache import BuildCache
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.devices.emulated import CpuDevice
from autotune.devices.measure import Bench, Verdict
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.expected import expect
from autotune.ops.registry import get_op
from autotune.trace.observed import Trace
from autotune.trace.tracing import trace_plan

SPEC = gpu("h200")

Judge = Callable[[Problem, Config], Verdict]
"""`verdict` of one family's configurations."""


@dataclass(frozen=True)
class AttentionCase:
    """A problem by its fields, and what is hard about it."""

    name: str
    fields: dict[str, Value]

    def problem(self, op: str) -> Problem:
        """The case for one op."""
        return get_op(op).problem(**self.fields)

    def fitted(self, op: str, dtypes: Sequence[str], head_sizes: Sequence[int]) -> Problem:
        """The case for a family that takes only these: the first dtype, or HS=64, where the case has another."""
        dtype = self.fields["dtype"] if self.fields["dtype"] in dtypes else dtypes[0]
        HS = self.fields["HS"] if self.fields["HS"] in head_sizes else 64
        return get_op(op).problem(**{**self.fields, "dtype": dtype, "HS": HS})


def _case(name: str, T: int, T_kv: int, **fields: Any) -> AttentionCase:
    base: dict[str, Value] = {"B": 1, "NH": 2, "NH_kv": 2, "HS": 64, "dtype": "fp32", "causal": True}
    return AttentionCase(name, {**base, "T": T, "T_kv": T_kv, **fields})


CASES = (
    _case("square", 128, 128, B=2),
    _case("one query", 1, 70),
    _case("one query, all keys", 1, 70, causal=False, dtype="fp16"),
    _case("one query and one key", 1, 1, causal=False, dtype="fp16"),
    _case("one key: most rows see nothing", 239, 1),
    _case("one key for all", 239, 1, causal=False, dtype="fp16"),
    _case("more keys than queries, no whole tile", 113, 203, dtype="fp16", layout="bhtd"),
    _case("more queries than keys: rows without a key", 799, 3, dtype="bf16", HS=32),
    _case("more queries than keys, all visible", 203, 113, causal=False, dtype="fp16"),
    _case("first and last tile cut", 1023, 1024, NH=1, NH_kv=1),
    _case("three query heads a key head", 65, 65, B=2, NH=6, dtype="fp16"),
    _case("three query heads a key head, HS=96", 130, 77, NH=3, NH_kv=1, HS=96, dtype="bf16", layout="bhtd"),
    _case("packed", 130, 130, B=2, dtype="fp16", layout="packed"),
    _case("packed, five query heads a key head", 33, 33, NH=5, NH_kv=1, dtype="fp16", layout="packed"),
    _case("wide head", 70, 90, HS=128, dtype="bf16"),
    _case("odd head size", 70, 90, HS=40, causal=False),
)
"""The table; every family of both ops is run on it."""

CASE_NAMES = [case.name for case in CASES]


def families(op: str) -> tuple[Template, ...]:
    """The families that compute with plain fp32 arithmetic and so must take every case."""
    return tuple(find_template(op, name) for name in ("flash_simt", "unfused"))


def verdict(
    template: Template,
    problem: Problem,
    config: Config,
    cache: BuildCache,
    spec: DeviceSpec = SPEC,
    *,
    hidden_nan: bool = True,
) -> Verdict:
    """Render, build for the emulator, run twice on poisoned memory and compare every element with the float64
    reference. Inputs are NaN where few results depend on them, unless the family is one that need not withstand that.

    Lengths and numbers of heads are arguments of the kernels: the cache has one build for many problems.
    """
    source = render(template, problem, config, spec)
    op = get_op(problem.op)
    device = CpuDevice(spec, threads=2)
    try:
        return Bench(device, op, expect(op, problem, seed=1, hidden_nan=hidden_nan)).evaluate(
            build_emulator(source, cache), source.plan, None
        )
    finally:
        device.close()


def traced(template: Template, problem: Problem, config: Config, cache: BuildCache) -> Trace:
    """Run once with every access of every thread of every block watched."""
    return traced_source(render(template, problem, config, SPEC), problem, cache)


def traced_source(source: KernelSource, problem: Problem, cache: BuildCache) -> Trace:
    """The same of a source, which may have been changed since it was rendered."""
    op = get_op(problem.op)
    images = {name: array.ravel() for name, array in op.inputs(problem, seed=1).items()}
    artifact = build_emulator(source, cache, traced=True)
    return trace_plan(artifact, source.plan, images, op.tensors(problem), blocks=None)


def assert_no_bank_conflicts(trace: Trace, HS: int = 64) -> None:
    """Each kind of access to shared memory occurs, and none of it meets in a bank. Where tiles are wider than the head,
    that holds for what every step does: results leave once a block, in rows that are no whole number of lines.
    """
    results = ("shared load", "shared store") if HS % 32 == 0 else ()
    for operation in ("matrix load", "async copy", *results):
        lines = [line for kernel in trace.kernels for line in kernel.lines if line.operation == operation]
        assert lines, operation
        assert sum(line.conflicts for line in lines) == 0, operation


def covering(space: Space, seed: int) -> Iterator[dict[str, Value]]:
    """A few valid configurations, of random ones, with every value of every parameter that is valid at all."""
    rng = np.random.default_rng(seed)
    pool = [dict(space.sample(rng)) for _ in range(3000)]
    missing = {used for config in pool for used in config.items()}
    while missing:
        best = max(pool, key=lambda config: len(missing & set(config.items())))
        missing -= set(best.items())
        yield best
