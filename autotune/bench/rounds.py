"""Contenders in turn, round after round, so that a GPU that grows warm or slow does so for all of them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from autotune.core.measurement import Timing


@dataclass(frozen=True)
class Timed:
    """One round of one contender: the GPU's time of a call, and microseconds of the host's, where they were taken."""

    kernel: Timing
    call_us: float | None = None


def interleaved(
    names: Sequence[str],
    measure: Callable[[str], Timed | None],
    rounds: int,
    hopeless: float = float("inf"),
    always: Collection[str] = (),
) -> dict[str, list[Timed]]:
    """What was measured of every contender in each round.

    Args:
        names: of the contenders, in the order in which they come in every round.
        measure: one round of one; None puts it out.
        rounds: how many there are.
        hopeless: who took this many times the fastest one's time in the first round comes in no other one.
        always: who comes in all rounds, however slow.
    """
    found: dict[str, list[Timed]] = {name: [] for name in names}
    out: set[str] = set()
    for number in range(rounds):
        fastest = min((times[0].kernel.median_ms for times in found.values() if times), default=0.0)
        for name in names:
            slow = number > 0 and name not in always and name not in out
            if slow and found[name][0].kernel.median_ms > hopeless * fastest:
                continue
            timed = None if name in out else measure(name)
            if timed is None:
                out.add(name)
            else:
                found[name].append(timed)
    return {name: times for name, times in found.items() if name not in out}
