"""`autotune show`: one record with its history."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.output import DbOption, JsonOption, print_json, print_pairs, print_table, say
from autotune.core.errors import AutotuneError, UsageError
from autotune.core.values import format_config
from autotune.core.words import format_ms

if TYPE_CHECKING:
    from autotune.estimate.examine import Estimated
    from autotune.store.records import StoredMeasurement
    from autotune.store.store import Store

    History = list[StoredMeasurement]


def command(
    record: Annotated[
        str, typer.Argument(metavar="ID", help="A record's number, or a source's hash (from an export).")
    ],
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Also model its time: occupancy, roofline bound, parts. Takes seconds.")
    ] = False,
    target: Annotated[
        str | None, typer.Option("--target", help="The GPU to estimate for [default: the record's].")
    ] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one winner or any other record, how it was verified and timed, and its history."""
    try:
        found, is_winner, history, climb = _from_database(record, db)
    except AutotuneError:
        shipped = _shipped(record)
        if shipped is None:
            raise
        found, is_winner, history, climb = shipped, True, [], []
    estimated = _estimate(found, target) if estimate or target is not None else None
    if as_json:
        shown = None if estimated is None else estimated.to_json()
        print_json({**_json(found, is_winner, history, climb), "estimate": shown})
    else:
        _print(found, is_winner, history, climb)
        _print_estimate(found, estimated)


def _estimate(found: "StoredMeasurement", target: str | None) -> "Estimated":
    """By the family as it is now: shipped ones only, since a record does not say where a user's file lies."""
    from autotune.estimate.examine import examine_alone
    from autotune.families.op_ref import OpRef
    from autotune.families.space import Space
    from autotune.families.template import find_template
    from autotune.gpus.identity import gpu_of_record
    from autotune.gpus.known import gpu
    from autotune.trace.remote import TracingProcess
    from autotune.trace.task import TraceTask

    candidate = found.candidate
    template = find_template(found.problem.op, candidate.template)
    spec = gpu(target or gpu_of_record(found.device))
    if {parameter.name for parameter in template.parameters} != candidate.config.keys():
        raise UsageError(f"no estimate: {template.name} has other parameters now than when this was recorded")
    reason = Space(template, found.problem, spec).why_not(candidate.config)
    if reason is not None:
        raise UsageError(f"no estimate: not a valid configuration of {template.name} on {spec.title}: {reason}")
    task = TraceTask(OpRef(found.problem.op), template.path, found.problem, candidate.values, spec)
    with TracingProcess() as process:
        return examine_alone(task, process.trace)


def _print_estimate(found: "StoredMeasurement", estimated: "Estimated | None") -> None:
    from autotune.report.estimates import LAUNCH_COLUMNS, headline, launch_rows

    if estimated is not None:
        say(f"\nEstimated: {headline(estimated)}")
        print_table(LAUNCH_COLUMNS, launch_rows(estimated), title=f"for {found.problem}")


def _from_database(record: str, db: str | None) -> "tuple[StoredMeasurement, bool, History, History]":
    """The record, whether it is a winner, its candidate's history, and how the search came to the fastest."""
    from autotune.store import open_store

    with open_store(db, create=False) as store:
        found = _find(store, record)
        history = store.history(found.id)
        timing = found.measurement.timing
        climb = [] if timing is None else store.improvements(found.problem, found.device, timing.kind)
        winner = None if timing is None else store.winner(found.problem, found.device, timing.kind)
    return found, winner is not None and winner.record.id == found.id, history, climb


def _shipped(source_hash: str) -> "StoredMeasurement | None":
    """A winner that comes with the package, by the hash that an exported file names."""
    from autotune.store.shipped import shipped_winners

    for line in shipped_winners():
        if line.source_hash == source_hash:
            return line.stored()
    return None


def _find(store: "Store", text: str) -> "StoredMeasurement":
    found = store.measurement(int(text)) if text.isdecimal() and len(text) < 16 else None
    if found is None:
        hashed = store.trials(source_hash=text, limit=200)
        ok = [record for record in hashed if record.measurement.ms is not None]
        found = min(ok, key=lambda record: record.measurement.ms or 0.0) if ok else next(iter(hashed), None)
    if found is None:
        raise UsageError(
            f"there is no record {text!r} in {store.location}; `autotune list winners` shows their numbers"
        )
    return found


def _json(
    found: "StoredMeasurement",
    is_winner: bool,
    history: "list[StoredMeasurement]",
    climb: "list[StoredMeasurement]",
) -> dict[str, Any]:
    return {
        "id": found.id,
        "winner": is_winner,
        "device": found.device,
        "problem": found.problem.to_json(),
        "template": found.candidate.template,
        "template_hash": found.candidate.template_hash,
        "config": found.candidate.config,
        **_traits_json(found),
        "source_hash": found.source_hash,
        "stage": found.stage,
        "created_at": found.created_at.isoformat(),
        "package_version": found.package_version,
        "measurement": found.measurement.to_json(),
        "history": [_brief(record) for record in history],
        "improvements": [_brief(record) for record in climb],
    }


def _traits_json(found: "StoredMeasurement") -> dict[str, Any]:
    """null where the family is not at hand as it was."""
    from autotune.families.traits import traits_of_record

    traits = traits_of_record(found.problem, found.candidate, found.device)
    return {"arithmetic": None, "deterministic": None} if traits is None else traits.to_json()


def _brief(record: "StoredMeasurement") -> dict[str, Any]:
    return {
        "id": record.id,
        "created_at": record.created_at.isoformat(),
        "stage": record.stage,
        "outcome": record.measurement.outcome.value,
        "ms": record.measurement.ms,
        "template": record.candidate.template,
        "template_hash": record.candidate.template_hash,
        "config": record.candidate.config,
        "driver": record.driver,
        "compiler": record.compiler,
    }


def _print(
    found: "StoredMeasurement", is_winner: bool, history: "list[StoredMeasurement]", climb: "list[StoredMeasurement]"
) -> None:
    from autotune.families.traits import traits_of_record
    from autotune.report.listing import energy_words

    measurement, timing, first = found.measurement, found.measurement.timing, found.measurement.measured_as
    traits = traits_of_record(found.problem, found.candidate, found.device)
    print_pairs(
        [
            ("record", f"{found.id or 'shipped'}{' (winner)' if is_winner else ''}"),
            ("problem", found.problem),
            ("device", found.device),
            ("template", f"{found.candidate.template} {found.candidate.template_hash}"),
            ("configuration", format_config(found.candidate.config)),
            *(() if traits is None else traits.rows()),
            ("source", found.source_hash),
            ("machine code", measurement.machine_code),
            ("measured as", first and f"{first.template_hash}, source {first.source_hash}: the same machine code"),
            ("outcome", f"{measurement.outcome} {measurement.message}".strip()),
            (
                "time",
                timing and f"{format_ms(timing.median_ms)} ms {timing.label} ({timing.method}, {timing.repeats}x)",
            ),
            ("energy", measurement.energy and energy_words(measurement.energy)),
            ("quartiles", timing and f"{format_ms(timing.q1_ms)} to {format_ms(timing.q3_ms)} ms"),
            ("verified", _verified(found)),
            *(("kernel", _resources(kernel)) for kernel in measurement.resources),
            *sorted(measurement.environment.items()),
            ("made", found.created_at.isoformat(timespec="seconds")),
        ]
    )
    columns = [">id", "when", "stage", "outcome", ">ms", "kind", "~configuration"]
    for records, title in ((history, "This configuration"), (climb, "The fastest so far, as the searches went on")):
        if records:
            print_table(columns, map(_row, records), title=f"\n{title}")


def _verified(found: "StoredMeasurement") -> str | None:
    verification = found.measurement.verification
    if verification is None:
        return None
    checks = ", ".join(f"{c.name} {c.max_abs_error:.2e} of {c.bound:.2e}" for c in verification.checks)
    return f"{checks} ({verification.units_checked} of {verification.units_total} pieces of {verification.problem})"


def _resources(kernel: Any) -> str:
    smem = kernel.static_smem + kernel.dynamic_smem
    return (
        f"{kernel.kernel}: {kernel.registers} registers, {kernel.spill_bytes} B spilled, {smem} B shared memory, "
        f"{kernel.threads} threads, occupancy {kernel.occupancy:.0%}"
    )


def _row(record: "StoredMeasurement") -> tuple[object, ...]:
    return (
        record.id,
        record.created_at.isoformat(timespec="seconds"),
        record.stage,
        record.measurement.outcome.value,
        format_ms(record.measurement.ms),
        "" if record.measurement.timing is None else record.measurement.timing.label,
        record.candidate.key,
    )
