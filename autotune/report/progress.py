"""How a running search is shown: a live panel on a terminal, otherwise a line now and then. All on stderr."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from autotune.core.values import format_config
from autotune.core.words import clock, format_ms, number
from autotune.tuning.events import Progress

if TYPE_CHECKING:
    from rich.console import RenderableType

_QUIET_S = 5.0
"""Seconds between plain lines when nothing better was found."""


class ProgressDisplay:
    """Shows each `Progress` it is called with; a context manager, because a live panel must be taken down."""

    def __init__(self, *, live: bool | None = None) -> None:
        """`live`: default whether stderr is a terminal."""
        self._display: _Live | _Plain = _Live() if (sys.stderr.isatty() if live is None else live) else _Plain()

    def __call__(self, progress: Progress) -> None:
        """Show how the search stands."""
        self._display.show(progress)

    def __enter__(self) -> "ProgressDisplay":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.end()


def headline(progress: Progress) -> str:
    """`backward B=4 … on NVIDIA H200 (times are estimates)`."""
    note = f", times estimated for {progress.title}" if progress.estimated else f" ({progress.title})"
    return f"{progress.problem} on {progress.device}{note}"


def trials_text(progress: Progress) -> str:
    """`17/40 trials`."""
    if progress.trials_limit is None or progress.trials > progress.trials_limit:
        return number(progress.trials, "trial")
    return f"{progress.trials}/{number(progress.trials_limit, 'trial')}"


def best_text(progress: Progress) -> str:
    """The best time so far with its family."""
    if progress.best_ms is None or progress.best is None:
        return "none verified yet"
    kind = " (estimate)" if progress.estimated else ""
    return f"best {format_ms(progress.best_ms)} ms{kind} {progress.best.template}"


def outcomes_text(progress: Progress) -> str:
    """`ok 12, infeasible 3`."""
    return ", ".join(f"{outcome} {count}" for outcome, count in progress.outcomes.items() if count)


def time_left(progress: Progress) -> float | None:
    """Seconds until trials or time run out, whichever is sooner; None when neither can be told."""
    guesses = []
    if progress.trials_limit is not None and progress.new:
        guesses.append((progress.trials_limit - progress.trials) * progress.elapsed / progress.new)
    if progress.timeout is not None:
        guesses.append(progress.timeout - progress.elapsed)
    return max(0.0, min(guesses)) if guesses else None


def work_text(progress: Progress) -> str:
    """What compilers and device do, how long they took, and the time left."""
    load, left = progress.load, time_left(progress)
    doing = {
        "finalists": "re-timing the finalists, ", "examining": "examining the winner, ", "finishing": "finishing, ",
        "waiting": "waiting for other workers, ",
    }.get(progress.phase, "")  # fmt: skip
    rest = "" if left is None or progress.phase != "searching" else f", about {clock(left)} left"
    waiting = load.queued + load.waiting
    busy = "" if progress.phase == "done" else f"{doing}{load.building} building, {waiting} waiting; "
    return f"{busy}compile {load.build_seconds:.0f} s, device {load.device_seconds:.0f} s{rest}"


class _Plain:
    """A line at every improvement, and one every few seconds."""

    def __init__(self) -> None:
        self._problem = ""
        self._shown_at = 0.0
        self._shown_best: float | None = None
        self._shown: object = None  # trials, best time and outcomes of the last line

    def show(self, progress: Progress) -> None:
        if progress.problem.key != self._problem:
            self._problem, self._shown_at, self._shown_best, self._shown = progress.problem.key, 0.0, None, None
            self._say(headline(progress))
        better = progress.best_ms != self._shown_best
        state = progress.trials, progress.best_ms, dict(progress.outcomes)
        due = state != self._shown if progress.phase == "done" else progress.elapsed - self._shown_at >= _QUIET_S
        if better or due:
            self._shown_at, self._shown_best, self._shown = progress.elapsed, progress.best_ms, state
            parts = (trials_text(progress), best_text(progress), outcomes_text(progress), work_text(progress))
            self._say(f"{clock(progress.elapsed)}  " + "; ".join(filter(None, parts)))

    def end(self) -> None:
        pass

    @staticmethod
    def _say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class _Live:
    """A panel that is redrawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), refresh_per_second=4)
        self._problem = ""

    def show(self, progress: Progress) -> None:
        if progress.problem.key != self._problem:
            self.end()
            self._problem = progress.problem.key
            self._live.start()
        self._live.update(_panel(progress))
        if progress.phase == "done":
            self.end()

    def end(self) -> None:
        if self._live.is_started:
            self._live.stop()


def _panel(progress: Progress) -> "RenderableType":
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bar = ProgressBar(total=progress.trials_limit, completed=progress.trials, width=30, pulse=not progress.trials_limit)
    top = Table.grid(padding=(0, 2))
    top.add_row(bar, trials_text(progress), clock(progress.elapsed))
    config = "" if progress.best is None else format_config(progress.best.config)
    return Group(
        Text(headline(progress), style="bold"),
        top,
        Text(best_text(progress), style="green"),
        Text(config, style="dim"),
        Text(outcomes_text(progress)),
        Text(work_text(progress), style="dim"),
    )
