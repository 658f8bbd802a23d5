"""`autotune list`: what a database holds."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.output import DbOption, JsonOption, format_ms, print_json, print_table
from autotune.outcome import Outcome
from autotune.values import format_config

if TYPE_CHECKING:
    from autotune.store.records import StoredMeasurement
    from autotune.store.store import Store


class What(StrEnum):
    """What can be listed."""

    PROBLEMS = "problems"
    WINNERS = "winners"
    TRIALS = "trials"
    DEVICES = "devices"


def command(
    what: Annotated[What, typer.Argument(help="What to list.")] = What.WINNERS,
    op: Annotated[str | None, typer.Option("--op", help="Of this op only.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="On this device only: h200, cpu:h200.")] = None,
    outcome: Annotated[Outcome | None, typer.Option("--outcome", help="Trials that ended so.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=2**31 - 1, help="Most trials shown, newest first.")] = 50,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """List problems, winners, trials or devices of a database."""
    from autotune.store import open_store

    with open_store(db, create=False) as store:
        columns, rows = _LISTS[what](store, op, device, outcome, limit)
    if as_json:
        print_json([dict(zip((c.lstrip(">") for c in columns), row, strict=True)) for row in rows])
    else:
        print_table(columns, [[_shown(cell) for cell in row] for row in rows])


_Listing = tuple[list[str], list[list[Any]]]


def _problems(store: "Store", op: str | None, device: str | None, *_: Any) -> _Listing:
    columns = ["problem", "device", ">trials", ">ok", "outcomes", ">measured ms", ">estimated ms"]
    rows = [
        [
            str(s.problem), s.device, s.trials, s.outcomes.get("ok", 0), dict(s.outcomes),
            s.best_ms.get("measured"), s.best_ms.get("estimated"),
        ]
        for s in store.problems(op=op)
        if device in {None, s.device}
    ]  # fmt: skip
    return columns, rows


def _winners(store: "Store", op: str | None, device: str | None, *_: Any) -> _Listing:
    return _MEASUREMENT_COLUMNS, [_measurement(winner.record) for winner in store.winners(op=op, device=device)]


def _trials(store: "Store", op: str | None, device: str | None, outcome: Outcome | None, limit: int) -> _Listing:
    records = store.trials(op=op, device=device, outcome=outcome, limit=limit)
    return _MEASUREMENT_COLUMNS, [_measurement(record) for record in records]


def _devices(store: "Store", op: str | None, device: str | None, *_: Any) -> _Listing:  # noqa: ARG001
    columns = ["device", "kind", "title", "arch", ">problems", ">trials", ">winners"]
    rows = [
        [d.name, d.kind, d.title, d.arch, d.problems, d.trials, d.winners]
        for d in store.devices()
        if device in {None, d.name}
    ]
    return columns, rows


_LISTS = {What.PROBLEMS: _problems, What.WINNERS: _winners, What.TRIALS: _trials, What.DEVICES: _devices}

_MEASUREMENT_COLUMNS = [">id", "device", "problem", "template", "configuration", "stage", "outcome", ">ms", "kind"]


def _measurement(record: "StoredMeasurement") -> list[Any]:
    timing = record.measurement.timing
    return [
        record.id,
        record.device,
        str(record.problem),
        record.candidate.template,
        format_config(record.candidate.config),
        record.stage,
        record.measurement.outcome.value,
        None if timing is None else timing.median_ms,
        None if timing is None else timing.kind,
    ]


def _shown(cell: Any) -> object:
    if isinstance(cell, dict):
        return " ".join(f"{name}:{count}" for name, count in sorted(cell.items()))
    return format_ms(cell) if isinstance(cell, float) else cell
