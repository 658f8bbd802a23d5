"""How often each part of a kernel's machine code is executed, from what was counted on the emulator.

The code says what each basic block does (products, loads, barriers, …), the counts how much of it happens in all. The
executions of blocks that fit best are found by least squares: what goes into a block comes out of it, a warp begins
once, and the sums are those counted. Where nothing tells the ways of a branch apart, they are taken equally often.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.errors import BuildError
from autotune.estimate.controlflow import OUT, Block, Code, blocks_of, chains_of, live_blocks
from autotune.estimate.counts import Counts
from autotune.estimate.nonnegative import Array, nonnegative_least_squares
from autotune.estimate.sass import Kind

Sums = dict[Kind, float]

_WEIGHTS: Mapping[Kind, float] = {
    "tensor": 10.0, "barrier": 5.0, "exponential": 3.0, "fp32": 2.0, "async copy": 2.0, "shuffle": 2.0,
    "shared load": 1.0, "shared store": 1.0, "global load": 1.0, "global store": 1.0,
}  # fmt: skip
"""How well compilers keep what a source says: products and barriers always, loads where they aren't merged or kept."""

_TELLING: tuple[Kind, ...] = ("tensor", "barrier", "exponential", "async copy", "shuffle", "global load")
"""Blocks that do any of these are not executed where none of it was counted."""

# Weights of: in is out; the ways of a branch are equally often taken; no needless rounds. Counts weigh 1 and more.
_FLOW, _EVEN, _FEW = 1e3, 1e-3, 1e-4


@dataclass(frozen=True)
class Flow:
    """Blocks in the code's order and how often a warp executes each, on average.

    `misfit`: the share of what was counted that these executions do not explain.
    """

    blocks: tuple[Block, ...]
    executions: tuple[float, ...]
    misfit: float


def flow_of(code: Code, counts: Counts, warps: float) -> Flow:
    """Executions of the blocks by each of `warps` warps, on average. Takes tens of milliseconds.

    Raises:
        BuildError: no way leads through the code.
    """
    blocks = blocks_of(code)
    wanted = {kind: count / warps for kind, count in _counted(counts).items()}
    done = [_done(code, block) for block in blocks]
    never = {i for i, sums in enumerate(done) if any(sums.get(kind) and not wanted[kind] for kind in _TELLING)}
    live = live_blocks(blocks, never) or live_blocks(blocks, ())
    if not live:
        raise BuildError(f"no way leads through the code of kernel {counts.kernel}")
    chains, edges = chains_of(blocks, live)
    sums = [_added(done[i] for i in chain) for chain in chains]
    often = _solved(chains, edges, sums, wanted)
    executions = [0.0] * len(blocks)
    for chain, times in zip(chains, often, strict=True):
        for i in chain:
            executions[i] = times
    explained = {kind: sum(n * found.get(kind, 0.0) for n, found in zip(often, sums, strict=True)) for kind in wanted}
    missed = sum(abs(explained[kind] - wanted[kind]) for kind in wanted)
    return Flow(blocks, tuple(executions), missed / max(sum(wanted.values()), 1e-9))


def _counted(counts: Counts) -> Sums:
    """By warps."""
    return {
        "tensor": counts.tensor, "barrier": counts.barriers, "exponential": counts.special / 32.0,
        "fp32": counts.fp32 / 32.0, "async copy": counts.async_copies, "shuffle": counts.shuffles,
        "shared load": counts.shared_loads, "shared store": counts.shared_stores, "global load": counts.global_loads,
        "global store": counts.global_stores,
    }  # fmt: skip


def _done(code: Code, block: Block) -> Sums:
    found: Sums = {}
    for instruction in code[block.begin : block.end]:
        if instruction.kind in _WEIGHTS:
            found[instruction.kind] = found.get(instruction.kind, 0.0) + instruction.amount
    return found


def _added(sums: Iterable[Sums]) -> Sums:
    total: Counter[Kind] = Counter()
    for found in sums:
        total.update(found)
    return dict(total)


def _solved(
    chains: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]], sums: Sequence[Sums], wanted: Sums
) -> list[float]:
    """Executions of each chain; unknown are those of the edges."""
    out = np.zeros((len(chains), len(edges)))
    into = np.zeros_like(out)
    for e, (begin, end) in enumerate(edges):
        out[begin, e] = 1.0
        if end != OUT:
            into[end, e] = 1.0
    entered = np.zeros(len(chains))
    entered[0] = 1.0
    rows, wants = [_FLOW * (out - into)], [_FLOW * entered]
    total = sum(wanted.values())
    for kind, count in wanted.items():
        scale = _WEIGHTS[kind] / (count + 0.01 * total + 1e-9)
        rows.append(scale * np.array([[found.get(kind, 0.0) for found in sums]]) @ out)
        wants.append(np.array([scale * count]))
    even = _even_ways(chains, edges)
    rows += [even, _FEW * np.eye(len(edges))]
    wants += [np.zeros(len(even)), np.zeros(len(edges))]
    times = nonnegative_least_squares(np.concatenate(rows), np.concatenate(wants))
    return [float(n) for n in out @ times]


def _even_ways(chains: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]]) -> Array:
    """An equation for each branch that goes on in two ways, neither of them back."""
    ways: dict[int, list[int]] = {}
    for e, (begin, end) in enumerate(edges):
        if end != OUT:
            ways.setdefault(begin, []).append(e)
    rows = []
    for begin, members in ways.items():
        if len(members) == 2 and all(chains[edges[e][1]][0] > chains[begin][0] for e in members):
            row = np.zeros(len(edges))
            row[members] = (_EVEN, -_EVEN)
            rows.append(row)
    return np.array(rows).reshape(len(rows), len(edges))
