"""How the result of a search is shown: the table of its best candidates and what to do next."""

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.answers.lookup import best
from autotune.core.errors import AutotuneError
from autotune.core.measurement import Energy, KernelResources, OutputCheck
from autotune.core.outcome import Outcome
from autotune.core.passwords import hidden
from autotune.core.problem import Problem
from autotune.core.values import Config, Value, format_config
from autotune.core.words import clock, format_ms, number, plain
from autotune.families.template import SUFFIX
from autotune.gpus.identity import gpu_of_record, parse_device
from autotune.gpus.meant import usual_gpu
from autotune.ops.op import Field, Op
from autotune.ops.registry import FIELD_OPTIONS, get_op
from autotune.report.listing import differing
from autotune.tuning.result import TIE, Ranked, SearchResult
from autotune.tuning.timeline import WORDS

_WAITED = 1.3
"""A call of a run back to back that takes so many times the median time has waited for its launch."""

_WHY = {
    "trials": "all trials of the budget are done",
    "timeout": "the time is up",
    "exhausted": "the whole space has been evaluated",
    "interrupted": "interrupted",
}


def table_columns(result: SearchResult) -> list[str]:
    """Headings of `table_rows`; `>` marks those set to the right. Estimated times are headed as such."""
    time = ">est. ms" if result.estimated else ">ms"
    energy = [">mJ", ">W", ">GFLOP/s/W"] if any(ranked.measurement.energy for ranked in result.table) else []
    figures = [*energy, ">TFLOP/s", "?>GB/s", ">error", "?>bound", ">regs", "?>spills B", ">smem B", "?>occupancy"]
    return ["#", "family", time, *figures, "~configuration"]


def table_rows(result: SearchResult) -> Iterator[list[str]]:
    """One row a candidate. Of a pipeline of kernels: most registers and shared memory, all spills, least occupancy."""
    metered = any(ranked.measurement.energy for ranked in result.table)
    for place, ranked in enumerate(result.table, start=1):
        worst, kernels = _worst_check(ranked), ranked.measurement.resources
        yield [
            str(place),
            ranked.candidate.template,
            format_ms(ranked.ms) + ("" if _counted(ranked) else " (not counted)"),
            *(energy_cells(ranked) if metered else ()),
            f"{ranked.tflops:.2f}",
            f"{ranked.gbs:.1f}",
            "" if worst is None else f"{worst.max_abs_error:.2g}",
            "" if worst is None else f"{worst.bound:.2g}",
            *_resources(kernels),
            format_config(_telling(ranked.candidate.config, _configs(result.table, ranked.candidate.template))),
        ]


def energy_cells(ranked: Ranked) -> list[str]:
    """Millijoules a call, mean watts, GFLOP/s a watt; empty where the energy was not measured."""
    energy, efficiency = ranked.measurement.energy, ranked.gflops_per_watt
    if energy is None or efficiency is None:
        return [""] * 3
    return [f"{energy.mj:.4g}", f"{energy.power_w:.0f}", f"{efficiency:.1f}"]


def shared_lines(result: SearchResult) -> Iterator[str]:
    """What the rows of a family have in common, which they leave out; below the table."""
    names = list(dict.fromkeys(ranked.candidate.template for ranked in result.table))
    for name in names:
        configs = _configs(result.table, name)
        telling = _telling(configs[0], configs)
        shared = {parameter: value for parameter, value in configs[0].items() if parameter not in telling}
        if shared:
            yield f"all {'rows' if len(names) == 1 else f'rows of {name}'}: {format_config(shared)}"


def summary_lines(result: SearchResult, asked: "Asked | None" = None) -> Iterator[str]:
    """What was searched and how it went, before the table; of what went wrong also how to look into it."""
    yield f"{result.problem} on {result.title}"
    counted = ", ".join(f"{outcome} {count}" for outcome, count in result.outcomes.items())
    counted = f" ({counted})" if counted else ""
    whose = [f"{result.resumed} of them from earlier runs"] if result.resumed else []
    others = result.trials - result.resumed - result.new
    whose += [f"{others} by other workers"] if others > 0 else []
    before = "".join(f", {words}" for words in whose)
    free = sum(result.outcomes.values()) - result.trials
    besides = f" ({number(free, 'proposal')} outside them ruled out unbuilt)" if free else ""
    why = _WHY[result.stopped]
    why += f", {number(result.dropped, 'candidate')} under way dropped" if result.dropped else ""
    yield (
        f"{number(result.trials, 'trial')}{before}{counted} in {clock(result.seconds)}: {why}; "
        f"{number(result.space_size, 'valid configuration')}{besides}"
    )
    if result.new:
        yield (
            f"{60 * result.new / result.seconds:.0f} candidates a minute; "
            f"compile {result.build_seconds:.0f} s, device {result.device_seconds:.0f} s"
        )
        if result.timeline and not result.estimated:
            yield ", ".join(f"{WORDS[event]} {seconds:.1f} s" for event, seconds in result.timeline.items())
    elif result.stopped == "trials" and result.resumed == result.trials:
        yield (
            f"nothing was left to do: earlier runs made all {number(result.trials, 'trial')}, whatever their sampler "
            f"and seed; more with --trials {2 * result.trials}"
        )
    for outcome, message in result.messages.items():
        yield f"first {outcome}: {' '.join(message.split())[:300]}"
        if outcome in _CHECKABLE and outcome in result.firsts:
            yield f"look into it: {check_command(get_op(result.problem.op), result, outcome, asked or Asked())}"
    if result.unplayed:
        yield (
            f"the time was up: {number(result.unplayed, 'finalist')} not timed once more, which would have taken more "
            "than 10 s; the same command with a longer --timeout does"
        )
    yield from _honesty(result)


_CHECKABLE = (Outcome.WRONG_RESULT, Outcome.LAUNCH_ERROR, Outcome.CRASH, Outcome.TIMEOUT)
"""What `autotune check` may find the cause of."""


def check_command(op: Op, result: SearchResult, outcome: Outcome, asked: "Asked") -> str:
    """The `autotune check` command for the first candidate with an outcome, for a shell."""
    candidate, problem = result.firsts[outcome], _tried(op, result, outcome)
    words = ["autotune", "check", "--op", op.name]
    for field in op.fields:
        default = problem[field.default_from] if field.default_from else field.default
        if problem[field.name] != default:
            words += _option(field, problem[field.name])
    files = [text for text in asked.templates if Path(text).name.removesuffix(SUFFIX) == candidate.template]
    words += ["--template", files[0] if files else candidate.template]
    words += ["--reference", asked.reference] if asked.reference else []
    for name, value in candidate.config.items():
        words += ["--param", f"{name}={value}"]
    return shlex.join([*words, "--device", gpu_of_record(result.device)])


def _tried(op: Op, result: SearchResult, outcome: Outcome) -> Problem:
    """The problem on which it went wrong: the message ends with another than the one searched."""
    told = re.search(rf"\(on ({op.name} [^()]*)\)$", result.messages[outcome])
    try:
        pairs = [text.split("=", 1) for text in told[1].split(" ")[1:]] if told else []
        return op.problem(**dict(pairs)) if pairs else result.problem
    except (AutotuneError, ValueError):  # no problem's key
        return result.problem


def no_winner(result: SearchResult) -> str:
    """Why there is no winner, and what to do."""
    if result.trials == 0 and result.stopped == "timeout":
        return (
            "no candidate was finished in the time, so there is no winner: give it more with --timeout SECONDS; the "
            "same command goes on from here"
        )
    if result.trials == 0 and result.stopped == "interrupted":
        return "interrupted before a candidate was finished: the same command goes on from here"
    return "no candidate was right and ran: there is no winner"


def _honesty(result: SearchResult) -> Iterator[str]:
    cap = parse_device(result.device).cap
    if cap:
        yield f"measured at {cap}, and kept apart from what was measured without a limit: as of {result.device}"
    limit = "" if result.best is None else result.best.measurement.environment.get("power_limit", "")
    if limit and len(set(re.findall(r"\d+", limit))) > 1:
        yield f"the GPU's power is limited to {limit}" + ("" if cap.power_w else ", not by this search")
    if result.estimated and result.trials:
        yield f"times are ESTIMATES for {result.title}, not measurements: no kernel has run on a GPU"
    if not all(map(_counted, result.table)):
        yield "not counted: the work could not be traced; a roofline's figure, ranked behind all others"
    if result.executed != result.problem:
        yield f"executed and verified on the emulator as {result.executed}"
    if result.best is not None and result.unexamined:
        yield f"the winner was not examined on another problem and by the checker: {result.unexamined}"
    verification = None if result.best is None else result.best.measurement.verification
    if verification is not None and verification.units_checked < verification.units_total:
        yield f"compared {verification.units_checked} of {verification.units_total} independent parts of each result"


def _counted(ranked: Ranked) -> bool:
    timing = ranked.measurement.timing
    return timing is None or timing.counted


def sweep_columns(results: Sequence[SearchResult]) -> list[str]:
    """Headings of `sweep_rows`: the fields in which the problems differ, then what was found."""
    time = ">est. ms" if results[0].estimated else ">ms"
    return [
        *(f">{name}" for name in _varied(results)),
        time,
        ">TFLOP/s",
        "?>GB/s",
        ">trials",
        "family",
        "~configuration",
    ]


def sweep_rows(results: Sequence[SearchResult]) -> Iterator[list[str]]:
    """One row a problem."""
    configs = [result.best.candidate.config for result in results if result.best is not None]
    for result in results:
        fields = [str(result.problem[name]) for name in _varied(results)]
        if result.best is None:
            yield [*fields, "", "", "", str(result.trials), "", no_winner(result)]
            continue
        best = result.best
        time = format_ms(best.ms) + ("" if _counted(best) else " (not counted)")
        rates = [f"{best.tflops:.2f}", f"{best.gbs:.1f}"]
        names = differing(configs)
        config = {name: value for name, value in best.candidate.config.items() if name in names or len(configs) < 2}
        yield [*fields, time, *rates, str(result.trials), best.candidate.template, format_config(config)]


def sweep_shared(results: Sequence[SearchResult]) -> Iterator[str]:
    """What holds for all rows of a sweep, above them."""
    fields = dict(results[0].problem.values)  # what is implied is not said
    varied = differing([result.problem.fields for result in results])
    same = " ".join(f"{name}={plain(value)}" for name, value in fields.items() if name not in varied)
    kind = f"times are ESTIMATES for {results[0].title}, not measurements" if results[0].estimated else results[0].title
    yield f"{len(results)} winners of {results[0].problem.op} {same}; {kind}"
    configs = [result.best.candidate.config for result in results if result.best is not None]
    if len(configs) > 1:
        names = differing(configs)
        shared = {name: value for name, value in configs[0].items() if name not in names}
        if shared:
            yield f"all rows: {format_config(shared)}"


def _varied(results: Sequence[SearchResult]) -> list[str]:
    """The fields in which problems differ, without those that follow another one in all (T_kv follows T)."""
    problems = [result.problem for result in results]
    follow = {
        field.name
        for field in get_op(problems[0].op).fields
        if field.default_from and all(problem[field.name] == problem[field.default_from] for problem in problems)
    }
    return [name for name in differing([problem.fields for problem in problems]) if name not in follow]


def best_lines(result: SearchResult) -> Iterator[str]:
    """The winner in full."""
    if result.best is not None:
        kind = "" if not result.estimated else " (estimate)" if _counted(result.best) else " (estimate, not counted)"
        energy = result.best.measurement.energy
        took = "" if energy is None else f", {energy.mj:.4g} mJ a call ({energy.power_w:.0f} W)"
        yield f"best{_by(result)}: {format_ms(result.best.ms)} ms{kind}{took}, {result.best.candidate}"
        if energy is not None:
            yield from energy_lines(energy, result.best.ms)
        if result.best.traits is not None:
            yield from (f"{name}: {text}" for name, text in result.best.traits.rows())
        if result.ties:
            yield f"tied with {number(result.ties, 'other')}: estimates within {TIE:.1%} do not tell them apart"


def _by(result: SearchResult) -> str:
    return {"time": "", "time,energy": " in time"}.get(result.objective, f" by {result.objective}")


def energy_lines(energy: Energy, ms: float) -> Iterator[str]:
    """What an energy is of, and what speaks against it."""
    idle = "" if energy.idle_w is None else f"; {energy.idle_w:.0f} W of it are drawn idle"
    yield f"energy: all that the GPU takes for a call, from {energy.seconds:.2g} s back to back ({energy.method}){idle}"
    if energy.call_ms > _WAITED * ms:
        yield (
            f"energy: a call took {format_ms(energy.call_ms)} ms in that run: the GPU waited for launches in between, "
            "and a busier one takes less for each"
        )


@dataclass(frozen=True)
class Asked:
    """What a user asked of a search and a look-up must be asked too, to answer with the same winner."""

    fields: Collection[str] = ()
    templates: Sequence[str] = ()
    reference: str | None = None
    db: str | None = None
    full_precision: bool = False
    objective: str = "time"
    max_error: float | None = None

    @property
    def looked_up(self) -> str:
        """The objective of a look-up: with several ones it answers with the fastest."""
        return "time" if "," in self.objective else self.objective


def next_command(op: Op, result: SearchResult, asked: Asked) -> str:
    """The `autotune export` command that writes the winner of a search.

    It names the fields that were given and those that are no defaults, the family where families were named, and the
    GPU where a look-up would take another one.
    """
    words = ["autotune", "export", "--op", op.name]
    for field in op.fields:
        value = result.problem[field.name]
        default = result.problem[field.default_from] if field.default_from else field.default
        if field.name in asked.fields or value != default:
            words += _option(field, value)
    words += _family(result, asked.templates)
    words += ["--reference", asked.reference] if asked.reference else []
    words += ["--full-precision"] if asked.full_precision else []
    words += ["--objective", asked.looked_up] if asked.looked_up != "time" else []
    words += ["--max-error", f"{asked.max_error:g}"] if asked.max_error is not None else []
    gpu = looked_up(result.device)
    words += [] if gpu == usual_gpu() else ["--device", gpu]
    words += ["--db", hidden(asked.db)] if asked.db else []
    return shlex.join([*words, "-o", f"{op.name}.cu"])


def other_answer(op: Op, result: SearchResult, asked: Asked) -> str | None:
    """What `next_command` writes where that is not this search's winner, because something faster is known."""
    if result.best is None:
        return None
    named = _family(result, asked.templates)
    try:
        found = best(
            op.name, device=looked_up(result.device), db=asked.db, template=named[1] if named else None,
            reference=asked.reference, inputs=None, full_precision=asked.full_precision, objective=asked.looked_up,
            max_error=asked.max_error, **result.problem.fields,
        )  # fmt: skip
    except AutotuneError:  # the command itself will say so
        return None
    if found.candidate == result.best.candidate or found.found_ms is None:
        return None
    known = f"{format_ms(found.found_ms)} ms {found.kind} {found.found_for}".rstrip()
    return f"this writes a better one that is known already: {found.candidate}, {known}"


def looked_up(device: str) -> str:
    """A record's device as a look-up names it: the GPU, with the limits that it was held to."""
    meant = parse_device(device)
    return str(replace(meant, kind="cuda", gpu=meant.gpu or device))


def _family(result: SearchResult, templates: Sequence[str]) -> list[str]:
    """The winner's family, as it was named."""
    winner = result.best.candidate.template if result.best is not None else ""
    named = [text for text in templates if text == winner or Path(text).name.removesuffix(SUFFIX) == winner]
    return ["--template", named[0]] if named else []


def _option(field: Field, value: Value) -> list[str]:
    if field.name not in FIELD_OPTIONS:
        return ["--set", f"{field.name}={value}"]
    if field.kind == "bool":
        return [field.option if value else field.option.replace("--", "--no-", 1)]
    return [field.option, str(value)]


def _worst_check(ranked: Ranked) -> OutputCheck | None:
    verification = ranked.measurement.verification
    if verification is None:
        return None
    return max(verification.checks, key=lambda check: check.max_abs_error / check.bound if check.bound else 0.0)


def _resources(kernels: Sequence[KernelResources]) -> list[str]:
    if not kernels:
        return [""] * 4
    return [
        str(max(kernel.registers for kernel in kernels)),
        str(sum(kernel.spill_bytes for kernel in kernels)),
        str(max(kernel.static_smem + kernel.dynamic_smem for kernel in kernels)),
        f"{min(kernel.occupancy for kernel in kernels):.0%}",
    ]


def _configs(table: Sequence[Ranked], template: str) -> list[Config]:
    return [ranked.candidate.config for ranked in table if ranked.candidate.template == template]


def _telling(config: Config, configs: Sequence[Config]) -> Config:
    """The parameters in which a family's candidates differ; all of them where there is only one."""
    if len(configs) == 1:
        return config
    return {name: value for name, value in config.items() if len({other[name] for other in configs}) > 1}
