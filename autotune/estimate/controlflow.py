"""Basic blocks of machine code, the ways between them, and loops."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from autotune.estimate.sass import ENDING, Instruction

Code = Sequence[Instruction]

OUT = -1
"""Where an edge leads that ends the warp."""


@dataclass(frozen=True)
class Block:
    """Instructions [begin, end) that are executed one after the other, then one of the blocks `after`."""

    begin: int
    end: int
    after: tuple[int, ...]
    ends: bool  # the warp may end here

    @property
    def size(self) -> int:
        """Instructions."""
        return self.end - self.begin


@dataclass(frozen=True)
class Loop:
    """Its first block, and all of its blocks in order, those of loops within it among them."""

    head: int
    blocks: tuple[int, ...]


def blocks_of(code: Code) -> tuple[Block, ...]:
    """The basic blocks, in the code's order. A function that is called is part of no block's way: it returns behind.

    Before Hopper nvcc also writes jumps as calls; those lead to the warp's end, not to a return.
    """
    begins = {0}
    for place, instruction in enumerate(code):
        if instruction.kind in ENDING:
            begins.add(place + 1)
        if instruction.target is not None:
            begins.add(instruction.target)
    order = sorted(place for place in begins if 0 <= place < len(code))
    number: dict[int | None, int] = {begin: i for i, begin in enumerate(order)}
    bounds = zip(order, [*order[1:], len(code)], strict=True)
    returning = [_block(code, begin, end, number, jumps=False) for begin, end in bounds]
    after = [(*block.after, *_called(code, block, number)) for block in returning]
    found = []
    for block in returning:
        reached = _reached(_called(code, block, number), after.__getitem__, ())
        jumps = any(code[returning[i].end - 1].kind == "exit" for i in reached)
        found.append(_block(code, block.begin, block.end, number, jumps=True) if jumps else block)
    return tuple(found)


def _called(code: Code, block: Block, number: Mapping[int | None, int]) -> list[int]:
    last = code[block.end - 1]
    return [number[last.target]] if last.kind == "call" and last.target in number else []


def _block(code: Code, begin: int, end: int, number: Mapping[int | None, int], *, jumps: bool) -> Block:
    """`jumps`: a call at the end is one."""
    last = code[end - 1]
    leaves = last.kind in ("branch", "exit", "return") or jumps
    after = [number[last.target]] if last.target in number and (last.kind == "branch" or jumps) else []
    if end in number and (not leaves or last.conditional):
        after.append(number[end])
    return Block(begin, end, tuple(dict.fromkeys(after)), last.kind in ("exit", "return") or not after)


def live_blocks(blocks: Sequence[Block], never: Collection[int]) -> list[int]:
    """Blocks on a way from the first to an end that leads through none of `never`, in order."""
    reached = _reached([0], lambda i: blocks[i].after, never)
    before: dict[int, list[int]] = {i: [] for i in reached}
    for i in reached:
        for j in blocks[i].after:
            if j in reached:
                before[j].append(i)
    leading = _reached([i for i in reached if blocks[i].ends], before.__getitem__, ())
    return sorted(leading) if 0 in leading else []


def _reached(starts: Sequence[int], after: Callable[[int], Sequence[int]], but: Collection[int]) -> set[int]:
    found = {start for start in starts if start not in but}
    unseen = list(found)
    while unseen:
        for i in after(unseen.pop()):
            if i not in found and i not in but:
                found.add(i)
                unseen.append(i)
    return found


def chains_of(blocks: Sequence[Block], live: Sequence[int]) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Live blocks in chains that are always executed together, and the edges between chains (to OUT: the end)."""
    among = set(live)
    after = {i: [j for j in blocks[i].after if j in among] for i in live}
    entries = dict.fromkeys(live, 0)
    for i in live:
        for j in after[i]:
            entries[j] += 1
    follows = {
        after[i][0]: i
        for i in live
        if len(after[i]) == 1 and not blocks[i].ends and entries[after[i][0]] == 1 and after[i][0] != live[0]
    }
    chains = []
    for i in live:
        if i not in follows:
            chain = [i]
            while len(after[chain[-1]]) == 1 and follows.get(after[chain[-1]][0]) == chain[-1]:
                chain.append(after[chain[-1]][0])
            chains.append(chain)
    number = {chain[0]: n for n, chain in enumerate(chains)}
    edges = [(n, number[j]) for n, chain in enumerate(chains) for j in after[chain[-1]]]
    edges += [(n, OUT) for n, chain in enumerate(chains) if blocks[chain[-1]].ends]
    return chains, edges


def loops_of(blocks: Sequence[Block], live: Sequence[int]) -> list[Loop]:
    """Natural loops, inner ones first. An edge to the same or an earlier block closes one."""
    among = set(live)
    before: dict[int, list[int]] = {i: [] for i in live}
    for i in live:
        for j in blocks[i].after:
            if j in among:
                before[j].append(i)
    tails: dict[int, list[int]] = {}
    for i in live:
        for j in blocks[i].after:
            if j in among and j <= i:
                tails.setdefault(j, []).append(i)
    loops = [
        Loop(head, tuple(sorted({head} | _reached(ends, before.__getitem__, (head,))))) for head, ends in tails.items()
    ]
    return sorted(loops, key=lambda loop: len(loop.blocks))
