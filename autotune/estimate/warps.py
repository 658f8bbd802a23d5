"""Warps that share a scheduler, instruction by instruction.

One of an SM's schedulers is simulated; the others are taken to be alike. A warp issues its next instruction when the
clocks that the compiler wants between two have passed, the scoreboards it waits for are free, and so is the pipe that
the instruction needs; one warp issues in a clock. Barriers wait for the block's other warps, and for copies under way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.estimate.sass import Instruction, Pipe

ROUNDS = 4
"""How often a loop is gone through; the first time leads in."""

BARRIER_CLOCKS = 150.0
"""Fitted: from the last warp's arrival at a barrier until the block's warps go on."""

_OTHER_LATENCY = 20.0  # of what has no latency of its own: special registers, constants
_OPERANDS_READ = 20.0  # clocks until a store has read its operands

_NONE, _BARRIER, _COPY, _COMMIT, _WAIT = range(5)
_ACTIONS = {"barrier": _BARRIER, "async copy": _COPY, "commit copies": _COMMIT, "wait for copies": _WAIT}
_NO_PIPE = 0


@dataclass(frozen=True)
class Costs:
    """Clocks that an instruction keeps its pipe busy, and until its result is there, by pipe.

    `word`: busy clocks for each word a lane exchanges with shared memory. `copied`: until a copy to it is there.
    """

    busy: Mapping[Pipe, float]
    latency: Mapping[Pipe, float]
    word: float
    copied: float


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction with its costs."""

    pipe: int
    busy: float
    latency: float
    stall: float
    sets: int | None
    frees: int | None
    waits: tuple[int, ...]
    action: int
    groups: int


@dataclass(slots=True, eq=False)
class _Warp:
    """Where a warp is, and when it can go on as far as only itself is concerned."""

    block: int
    ready: float
    place: int = 0
    boards: list[float] = field(default_factory=lambda: [0.0] * 6)
    copied: float = 0.0  # when the copies not committed are there
    groups: list[float] = field(default_factory=list)  # when those committed are
    rounds: list[float] = field(default_factory=list)  # when each ended
    at_barrier: bool = False


def steps_of(code: Sequence[Instruction], costs: Costs) -> list[Step]:
    """A run of instructions."""
    pipes: dict[str, int] = {"": _NO_PIPE}
    return [_step(instruction, costs, pipes) for instruction in code]


def _step(instruction: Instruction, costs: Costs, pipes: dict[str, int]) -> Step:
    pipe, kind = instruction.pipe, instruction.kind
    busy = costs.busy.get(pipe, 0.0) * (instruction.amount if kind == "tensor" else 1.0)
    if pipe == "exchange" and kind != "shuffle":
        busy = costs.word * instruction.words
    latency = costs.copied if kind == "async copy" else costs.latency.get(pipe, _OTHER_LATENCY)
    return Step(
        pipes.setdefault(pipe, len(pipes)), busy, latency, float(max(1, instruction.stall)), instruction.sets,
        instruction.frees, instruction.waits, _ACTIONS.get(kind, _NONE), instruction.groups,
    )  # fmt: skip


def clocks_alone(steps: Sequence[Step]) -> float:
    """Of one warp that goes through the steps once."""
    return _run(steps, [_Warp(0, 0.0)], 1, 1)[0].rounds[0]


def clocks_of_round(steps: Sequence[Step], blocks: int, warps: int) -> float:
    """Clocks between two rounds of a loop, when all warps of a scheduler are in it.

    Args:
        steps: the loop's body.
        blocks: on the SM.
        warps: of each block on this scheduler.
    """
    apart = clocks_alone(steps) / blocks  # blocks on an SM are anywhere in the loop
    found = _run(steps, [_Warp(block, block * apart) for block in range(blocks) for _ in range(warps)], warps, ROUNDS)
    return sum(warp.rounds[-1] - warp.rounds[0] for warp in found) / len(found) / (ROUNDS - 1)


def _run(steps: Sequence[Step], warps: list[_Warp], together: int, rounds: int) -> list[_Warp]:
    free = [0.0] * (1 + max(step.pipe for step in steps))  # when each pipe is, the first stands for none
    clock = 0.0  # the first in which nothing is issued yet
    active = list(warps)
    arrived: dict[int, list[_Warp]] = {}
    while active:
        chosen, at = active[0], float("inf")
        for warp in active:
            if warp.at_barrier:
                continue
            when = max(warp.ready, free[steps[warp.place].pipe])
            if when < at:
                chosen, at = warp, when
        step = steps[chosen.place]
        at = max(at, clock)
        clock = at + 1.0
        if step.pipe != _NO_PIPE:
            free[step.pipe] = at + step.busy
        _issue(chosen, step, at)
        if step.action == _BARRIER:
            _arrive(chosen, arrived, together)
        active.remove(chosen)
        chosen.place += 1
        if chosen.place == len(steps):
            chosen.place = 0
            chosen.rounds.append(chosen.ready)
        if len(chosen.rounds) < rounds:
            active.append(chosen)  # of several that are ready, the one that has waited longest is next
            _look_ahead(chosen, steps[chosen.place])
    return warps


def _issue(warp: _Warp, step: Step, at: float) -> None:
    done = at + step.busy + step.latency
    if step.action == _COPY:
        warp.copied = max(warp.copied, done)
    elif step.action == _COMMIT:
        warp.groups.append(warp.copied)
    if step.sets is not None:
        warp.boards[step.sets] = max(warp.boards[step.sets], done)
    if step.frees is not None:
        warp.boards[step.frees] = max(warp.boards[step.frees], at + step.busy + min(step.latency, _OPERANDS_READ))
    warp.ready = at + step.stall


def _look_ahead(warp: _Warp, step: Step) -> None:
    """When the warp's next step can be issued."""
    for board in step.waits:
        warp.ready = max(warp.ready, warp.boards[board])
    if step.action == _WAIT and len(warp.groups) > step.groups:
        warp.ready = max(warp.ready, warp.groups[-step.groups - 1])


def _arrive(warp: _Warp, arrived: dict[int, list[_Warp]], together: int) -> None:
    waiting = arrived.setdefault(warp.block, [])
    waiting.append(warp)
    warp.at_barrier = True
    if len(waiting) == together:
        last = max(other.ready for other in waiting) + BARRIER_CLOCKS
        for other in waiting:
            other.at_barrier = False
            other.ready = max(other.ready, last)
        waiting.clear()
