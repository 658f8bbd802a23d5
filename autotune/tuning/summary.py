"""From what a search found to its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.outcome import Outcome
from autotune.families.traits import traits_of
from autotune.tuning.budget import Clock
from autotune.tuning.evaluation import Task
from autotune.tuning.evaluator import Load
from autotune.tuning.joint_space import Families
from autotune.tuning.ledger import Entry, Ledger, figures_of
from autotune.tuning.loop import Engine
from autotune.tuning.objective import PLAIN, Demand, front
from autotune.tuning.result import TIE, Ranked, SearchResult

TABLE_ROWS = 10


@dataclass(frozen=True)
class Findings:
    """Ranked entries with the winner first, everything known, the engine that found it, trials known before; how many
    finalists there was no time for.
    """

    ranked: list[Entry]
    ledger: Ledger
    engine: Engine
    resumed: int
    unplayed: int = 0


def summarise(
    findings: Findings, task: Task, families: Families, clock: Clock, load: Load, database: str,
    demand: Demand = PLAIN,
) -> SearchResult:  # fmt: skip
    """The result of a search over `families`, with rates computed from the op's flops and bytes."""
    flops, nbytes = task.op.flops(task.problem), task.op.nbytes(task.problem)
    ranked = (rank(entry, flops, nbytes) for entry in findings.ranked[:TABLE_ROWS])
    table = tuple(_with_traits(place, task) for place in ranked)
    ledger, engine = findings.ledger, findings.engine
    return SearchResult(
        problem=task.problem,
        device=task.identity.name,
        title=task.identity.spec.title,
        estimated=task.emulated,
        executed=task.executed,
        best=table[0] if table else None,
        table=table,
        trials=ledger.trials,
        resumed=findings.resumed,
        new=engine.new,
        outcomes=dict(ledger.outcomes),
        messages=ledger.first_messages(),
        firsts={outcome: entry.candidate for outcome, entry in ledger.firsts().items()},
        space_size=families.size,
        asked=engine.asked,
        duplicates=engine.duplicates,
        seconds=clock.elapsed,
        build_seconds=load.build_seconds,
        device_seconds=load.device_seconds,
        stopped=engine.stopped or "interrupted",
        database=database,
        dropped=engine.dropped,
        unplayed=findings.unplayed,
        ties=_ties(findings.ranked) if task.emulated else 0,
        interrupted=engine.stop,
        objective=demand.objective.name,
        max_error=demand.max_error,
        pareto=_front(findings.ranked, task) if demand.objective.metered else (),
    )


def _front(ranked: Sequence[Entry], task: Task) -> tuple[Ranked, ...]:
    """What no other candidate beats in both time and energy, fastest first."""
    flops, nbytes = task.op.flops(task.problem), task.op.nbytes(task.problem)
    metered = [entry for entry in ranked if entry.figures is not None]
    return tuple(_with_traits(rank(entry, flops, nbytes), task) for entry in front(metered, figures_of))


def _with_traits(ranked: Ranked, task: Task) -> Ranked:
    candidate, spec = ranked.candidate, task.identity.spec
    template = task.templates[candidate.template]
    return replace(ranked, traits=traits_of(template, task.problem, candidate.config, spec))


def _ties(ranked: Sequence[Entry]) -> int:
    """How many other candidates are as fast as the best, as far as estimates tell."""
    alike = (entry for entry in ranked[1:] if entry.counted == ranked[0].counted)
    return sum(entry.ms <= ranked[0].ms * (1.0 + TIE) for entry in alike)


def rank(entry: Entry, flops: float, nbytes: float) -> Ranked:
    """An `ok` entry with its rates: flops and bytes over milliseconds."""
    assert entry.measurement.outcome is Outcome.OK
    return Ranked(
        entry.candidate, entry.measurement, entry.record_id, entry.ms, flops / entry.ms / 1e9, nbytes / entry.ms / 1e6
    )
