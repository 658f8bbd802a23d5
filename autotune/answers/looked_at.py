"""Which families a look-up is about, and which figures of theirs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.core.candidate import Candidate
from autotune.core.errors import NoFeasibleConfiguration, UsageError
from autotune.core.problem import Problem
from autotune.families import template as templates
from autotune.families.catalogue import Families
from autotune.families.op_ref import load_own
from autotune.families.user_functions import Named
from autotune.gpus.cap import NO_CAP, Cap
from autotune.gpus.identity import DEVICES, DeviceName
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from autotune.store.entries import Entry, Winners
from autotune.tuning.objective import TIME, Objective, find_objective, require_error


def looked_at(
    op: str | None, template: str | Path | None, reference: Named | None, inputs: Named | None
) -> tuple[Families, str]:
    """What may answer, and for which op."""
    if template is None or not templates.names_file(str(template)):
        name = get_op("forward" if op is None else op).name  # before it is taken for the name of a folder
        if template is None:
            return Families(templates.builtin_templates(name)), name
        return Families((templates.find_template(name, str(template)),)), name
    path = Path(template)
    computed = templates.load_template(path).op
    if op is not None and op != computed:
        raise UsageError(f"the template {path} computes {computed!r}, not {op!r}")
    own = load_own(path, reference, inputs)
    shipped = tuple(other for other in templates.builtin_templates(own.op) if other.name != own.name)
    return Families((own, *shipped)), own.op


@dataclass(frozen=True)
class Wish:
    """What is asked of a winner beside being the fastest of all: least energy, an error, limits of the GPU."""

    objective: Objective = TIME
    max_error: float | None = None
    cap: Cap = NO_CAP

    @property
    def plain(self) -> bool:
        return self == Wish()

    @property
    def words(self) -> str:
        """In short, for a message."""
        parts = [
            "its energy known" if self.objective.metered else "",
            f"an error of at most {self.max_error:g} of the bound" if self.max_error is not None else "",
            f"the GPU at {self.cap}" if self.cap else "",
        ]
        return ", ".join(filter(None, parts))


def make_wish(objective: str, max_error: float | None, cap: Cap) -> Wish:
    """A wish from what a look-up is asked.

    Raises:
        UsageError: no such objective, or none with one winner; an error that is not more than 0.
    """
    found = find_objective(objective)
    if found.several:
        raise UsageError(f"objective {objective!r} has no single winner; look up time, energy or edp")
    require_error(max_error)
    return Wish(found, max_error, cap)


def wished(winners: Winners, families: Families, problem: Problem, spec: DeviceSpec, wish: Wish) -> Entry | None:
    """The best record of this very problem and GPU that fulfils a wish; None where there is none.

    Measured before estimated, the user's own before shipped ones; finalists, by their newest final, before all others:
    the best of many trials is a lucky one. Shipped winners are those in time, without a limit.
    """
    for entries in _groups(winners, families, problem, spec, wish):
        fitting = [e for e in entries if families.is_current(e.candidate) and families.lists(e.candidate)]
        if wish.max_error is not None:
            fitting = [e for e in fitting if e.error is not None and e.error <= wish.max_error]
        finalists = [entry for entry in fitting if entry.final]
        if fitting:
            return min(finalists or fitting, key=lambda entry: wish.objective.cost((entry.ms, entry.energy_mj or 0.0)))
    return None


def _groups(
    winners: Winners, families: Families, problem: Problem, spec: DeviceSpec, wish: Wish
) -> Iterator[list[Entry]]:
    """Records of one kind each, those that come first first."""
    measured, estimated = (
        [str(DeviceName(kind, spec.name, cap=wish.cap)) for kind in DEVICES if kind != "replay" and _times(kind, times)]
        for times in ("measured", "estimated")
    )
    metered = wish.objective.metered
    yield winners.every(problem, measured, metered=metered)
    if metered or wish.cap:
        return
    shipped = winners.shipped(problem, spec.compute_capability, families.versions)
    yield [entry for entry in shipped if entry.gpu == spec.name]
    yield winners.every(problem, estimated, metered=metered)


def _times(kind: str, times: str) -> bool:
    return times in DEVICES[kind].times


def unfulfilled(problem: Problem, spec: DeviceSpec, wish: Wish) -> NoFeasibleConfiguration:
    """The error where nothing on record has an error as small as is asked."""
    return NoFeasibleConfiguration(
        f"nothing on record for {problem} on {spec.title} has {wish.words}: `autotune search --max-error "
        f"{wish.max_error:g}` looks for it"
    )


def changed(tuned: Candidate, answered: Candidate, why: str) -> str:
    """In what a configuration is another than the one that was tuned, in words, and why; empty where it is the same."""
    names = (name for name, value in answered.config.items() if tuned.config[name] != value)
    return "".join(f", there with {name}={tuned.config[name]}, which {why}" for name in names)
