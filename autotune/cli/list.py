"""`autotune list`: what a database holds."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.output import DbOption, JsonOption, print_json, print_table
from autotune.core.outcome import Outcome
from autotune.core.values import format_config
from autotune.core.words import format_ms

if TYPE_CHECKING:
    from autotune.store.records import StoredMeasurement
    from autotune.store.store import Store


class What(StrEnum):
    """What can be listed."""

    PROBLEMS = "problems"
    WINNERS = "winners"
    TRIALS = "trials"
    DEVICES = "devices"
    GPUS = "gpus"


class Sort(StrEnum):
    """What comes first."""

    NEW = "new"
    MS = "ms"


def command(  # noqa: PLR0913, PLR0917 - one parameter an option
    what: Annotated[What, typer.Argument(help="What to list.")] = What.WINNERS,
    op: Annotated[str | None, typer.Option("--op", help="Of this op only.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="On this device only: h200, cpu:h200.")] = None,
    outcome: Annotated[Outcome | None, typer.Option("--outcome", help="Trials that ended so.")] = None,
    template: Annotated[str | None, typer.Option("--template", help="Winners or trials of this family only.")] = None,
    full_precision: Annotated[
        bool,
        typer.Option(
            "--full-precision",
            help="Winners among families whose products are those of the dtype (no 3xTF32 for fp32).",
        ),
    ] = False,
    sort: Annotated[
        Sort | None,
        typer.Option("--sort", help="Winners or trials: new, or ms for the fastest first [default: new for trials]."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=2**31 - 1, help="Most trials shown.")] = 50,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """List problems, winners, trials or devices of a database, or the GPUs that are known without one.

    What all rows have in common is said once.
    """
    from autotune.report.table import column_name

    if what == What.GPUS:
        return _print_gpus(as_json)
    from autotune.store import open_store

    with open_store(db, create=False) as store:
        if what in {What.WINNERS, What.TRIALS}:
            where: dict[str, Any] = {"op": op, "device": device, "outcome": outcome, "template": template}
            if what == What.TRIALS:
                return _print_records(store.trials(**where, limit=limit, fastest=sort == Sort.MS), as_json)
            return _print_records(_winners(store, where, sort, full_precision=full_precision), as_json)
        columns, rows = (_problems if what == What.PROBLEMS else _devices)(store, op, device)
    if as_json:
        print_json([dict(zip(map(column_name, columns), row, strict=True)) for row in rows])
    else:
        print_table(columns, [[_shown(cell) for cell in row] for row in rows])
    return None


def _print_gpus(as_json: bool) -> None:
    from autotune.report import gpus

    if as_json:
        print_json(gpus.to_json())
    else:
        print_table(gpus.COLUMNS, gpus.rows())


def _print_records(records: "Sequence[StoredMeasurement]", as_json: bool) -> None:
    from autotune.report.listing import listing

    if as_json:
        print_json([_json(record) for record in records])
        return
    shown = listing(records)
    for name, value in shown.shared:
        typer.echo(f"all rows: {name} {value}")
    print_table(shown.columns, shown.rows)


_Listing = tuple[list[str], list[list[Any]]]


def _problems(store: "Store", op: str | None, device: str | None) -> _Listing:
    columns = ["~problem", "device", ">trials", ">ok", "outcomes", ">measured ms", ">estimated ms"]
    rows = [
        [
            str(s.problem), s.device, s.trials, s.outcomes.get("ok", 0), dict(s.outcomes),
            s.best_ms.get("measured"), s.best_ms.get("estimated"),
        ]
        for s in store.problems(op=op)
        if device in {None, s.device}
    ]  # fmt: skip
    return columns, rows


def _winners(
    store: "Store", where: dict[str, Any], sort: Sort | None, *, full_precision: bool
) -> "list[StoredMeasurement]":
    from autotune.store.choosing import of_full_precision

    records = [winner.record for winner in store.winners(op=where["op"], device=where["device"])]
    records = list(of_full_precision(store, records)) if full_precision else records
    records = [record for record in records if where["template"] in {None, record.candidate.template}]
    if sort == Sort.MS:
        records.sort(key=lambda record: record.measurement.ms or 0.0)
    elif sort == Sort.NEW:
        records.sort(key=lambda record: -record.id)
    return records


def _devices(store: "Store", op: str | None, device: str | None) -> _Listing:  # noqa: ARG001
    columns = ["device", "kind", "title", "arch", ">problems", ">trials", ">winners"]
    rows = [
        [d.name, d.kind, d.title, d.arch, d.problems, d.trials, d.winners]
        for d in store.devices()
        if device in {None, d.name}
    ]
    return columns, rows


def _json(record: "StoredMeasurement") -> dict[str, Any]:
    timing = record.measurement.timing
    return {
        "id": record.id,
        "device": record.device,
        "problem": str(record.problem),
        "template": record.candidate.template,
        "configuration": format_config(record.candidate.config),
        "stage": record.stage,
        "outcome": record.measurement.outcome.value,
        "ms": None if timing is None else timing.median_ms,
        "kind": None if timing is None else timing.kind,
        "message": record.measurement.message,
    }


def _shown(cell: Any) -> object:
    if isinstance(cell, dict):
        return " ".join(f"{name}:{count}" for name, count in sorted(cell.items()))
    return format_ms(cell) if isinstance(cell, float) else cell
