"""What came out, as a table for docs/results.md and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Rate:
    """Candidates that were evaluated in so many seconds, from the start of the process."""

    candidates: int
    seconds: float

    @property
    def a_minute(self) -> float:
        return 60.0 * self.candidates / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Fate:
    """What became of a planted mistake, and what each says of it. `ours` and `theirs`: it was noticed, or survived."""

    name: str
    what: str
    crash: bool
    ours: bool
    theirs: bool
    ours_said: str
    theirs_said: str


@dataclass(frozen=True)
class Beside:
    """One comparison. `atol`: the least power of ten at which Kernel Tuner takes the right kernel for right; `version`
    and `backend` are Kernel Tuner's."""

    problem: str
    device: str
    version: str
    backend: str
    ours: Rate
    theirs: Rate
    atol: float
    fates: tuple[Fate, ...]

    @property
    def factor(self) -> float:
        """Our candidates a minute over theirs; 0 where they got to none."""
        return self.ours.a_minute / self.theirs.a_minute if self.theirs.candidates else 0.0

    def to_json(self) -> dict[str, Any]:
        rates = {name: {**asdict(rate), "a_minute": rate.a_minute} for name, rate in self._rates()}
        return {**asdict(self), **rates, "factor": self.factor}

    def _rates(self) -> Sequence[tuple[str, Rate]]:
        return ("ours", self.ours), ("theirs", self.theirs)

    def lines(self) -> list[str]:
        """The section, in Markdown."""
        wrong = [fate for fate in self.fates if not fate.crash]
        crashes = [fate for fate in self.fates if fate.crash]
        told = f"`answer=` the float64 reference and `atol={self.atol:g}`"
        lines = [
            f"{self.problem} on {self.device}; `python -m benchmarks.beside_kernel_tuner`. Kernel Tuner {self.version}",
            f"with its {self.backend} backend, {told}, the least power of ten at which the right kernel passes.",
            "",
            "| | autotune | Kernel Tuner |",
            "|---|---|---|",
            f"| candidates a minute | {self.ours.a_minute:.0f} ({self.ours.candidates} in {self.ours.seconds:.1f} s) "
            f"| {self.theirs.a_minute:.0f} ({self.theirs.candidates} in {self.theirs.seconds:.1f} s) |",
            f"| wrong kernels let through | {sum(not f.ours for f in wrong)} of {len(wrong)} "
            f"| {sum(not f.theirs for f in wrong)} of {len(wrong)} |",
            f"| crashes survived | {sum(f.ours for f in crashes)} of {len(crashes)} "
            f"| {sum(f.theirs for f in crashes)} of {len(crashes)} |",
            "",
            "| planted | what it does | autotune | Kernel Tuner |",
            "|---|---|---|---|",
        ]  # fmt: skip
        for fate in self.fates:
            cells = _cell(fate.ours, fate.ours_said, fate), _cell(fate.theirs, fate.theirs_said, fate)
            lines.append(f"| {fate.name} | {fate.what} | {' | '.join(cells)} |")
        return lines


def _cell(good: bool, said: str, fate: Fate) -> str:
    word = ("survived" if good else "ended") if fate.crash else ("noticed" if good else "let through")
    text = " ".join(said.replace("|", "/").split())[:100]
    return f"{word}: {text}" if text else word
