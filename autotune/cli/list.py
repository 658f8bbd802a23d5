"""`autotune list`: what a database holds."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.output import DbOption, JsonOption, print_json, print_table, say
from autotune.core.errors import UsageError
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


_TAKES = {
    What.PROBLEMS: {"op", "device", "limit", "db"},
    What.WINNERS: {"op", "device", "template", "full_precision", "sort", "limit", "shipped", "db"},
    What.TRIALS: {"op", "device", "template", "outcome", "sort", "limit", "db"},
    What.DEVICES: {"device", "limit", "db"},
    What.GPUS: {"limit"},
}
"""The options that mean something for each list; others are refused."""

_MOST_TRIALS = 50


def command(  # noqa: PLR0913 - one parameter an option
    what: Annotated[What, typer.Argument(help="What to list.")] = What.WINNERS,
    *,
    op: Annotated[str | None, typer.Option("--op", help="Problems, winners or trials of this op only.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="On this device only: h200, cpu:h200. Not for gpus.")
    ] = None,
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
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=2**31 - 1, help=f"Most rows [default: {_MOST_TRIALS} trials, else all]."),
    ] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Winners that come with the package, as where there is no database yet.")
    ] = False,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """List problems, winners, trials or devices of a database, or the GPUs that are known without one.

    What all rows have in common is said once.
    """
    given = {
        "op": op, "device": device, "outcome": outcome, "template": template, "full_precision": full_precision,
        "sort": sort, "limit": limit, "shipped": shipped, "db": db,
    }  # fmt: skip
    for name in [name for name, value in given.items() if value and name not in _TAKES[what]]:
        takers = ", ".join(other for other in What if name in _TAKES[other])
        raise UsageError(f"--{name.replace('_', '-')} means nothing for a list of {what}; it is for {takers}")
    if shipped and db is not None:
        raise UsageError(
            f"--shipped lists what comes with the package, and --db {db} names a database: give one of them"
        )
    if what == What.GPUS:
        return _print_gpus(limit, as_json)
    from autotune.store import open_store

    if what == What.WINNERS and (shipped or (db is None and _no_database())):
        if not shipped:
            typer.echo("no database yet: these winners come with the package", err=True)
        records = _sorted(_shipped_winners(op, device, template, full_precision=full_precision), sort)
        return _print_records(records[:limit], as_json)
    with open_store(db, create=False) as store:
        if what == What.TRIALS:
            where: dict[str, Any] = {"op": op, "device": device, "outcome": outcome, "template": template}
            trials = store.trials(**where, limit=limit or _MOST_TRIALS, fastest=sort == Sort.MS)
            return _print_records(trials, as_json)
        if what == What.WINNERS:
            winners = _winners(store, op, device, template, full_precision=full_precision)
            return _print_records(_sorted(winners, sort)[:limit], as_json)
        columns, rows = _problems(store, op, device) if what == What.PROBLEMS else _devices(store, device)
    _print_rows(columns, rows[:limit], as_json)
    return None


def _no_database() -> bool:
    """Whether the user's database is a file that is still to be made."""
    from autotune.store.location import database_url, sqlite_path

    path = sqlite_path(database_url())
    return path is not None and not path.exists()


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], as_json: bool) -> None:
    from autotune.report.table import column_name

    if as_json:
        print_json([dict(zip(map(column_name, columns), row, strict=True)) for row in rows])
    else:
        print_table(columns, [[_shown(cell) for cell in row] for row in rows])


def _print_gpus(limit: int | None, as_json: bool) -> None:
    from autotune.report import gpus

    if as_json:
        print_json(gpus.to_json()[:limit])
    else:
        print_table(gpus.COLUMNS, list(gpus.rows())[:limit])


def _print_records(records: "Sequence[StoredMeasurement]", as_json: bool) -> None:
    from autotune.report.listing import listing

    if as_json:
        print_json([_json(record) for record in records])
        return
    shown = listing(records)
    for name, value in shown.shared:
        say(f"all rows: {name} {value}")
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
    store: "Store", op: str | None, device: str | None, template: str | None, *, full_precision: bool
) -> "list[StoredMeasurement]":
    from autotune.store.choosing import of_full_precision

    records = [winner.record for winner in store.winners(op=op, device=device)]
    records = list(of_full_precision(store, records)) if full_precision else records
    return [record for record in records if template in {None, record.candidate.template}]


def _shipped_winners(
    op: str | None, device: str | None, template: str | None, *, full_precision: bool
) -> "list[StoredMeasurement]":
    """Of a problem that has several, of families with different arithmetic, all."""
    from autotune.store.choosing import full_versions
    from autotune.store.shipped import shipped_winners

    return [
        line.stored()
        for line in shipped_winners()
        if op in {None, line.problem.op}
        and device in {None, line.identity.name}
        and template in {None, line.candidate.template}
        and (not full_precision or line.candidate.template in full_versions(line.problem.op))
    ]


def _sorted(records: "list[StoredMeasurement]", sort: Sort | None) -> "list[StoredMeasurement]":
    if sort == Sort.MS:
        return sorted(records, key=lambda record: record.measurement.ms or 0.0)
    return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True) if sort else records


def _devices(store: "Store", device: str | None) -> _Listing:
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
        "id": record.id or None,
        "source_hash": record.source_hash,
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
