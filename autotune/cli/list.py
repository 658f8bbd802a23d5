"""`autotune list`: what a database holds, and what comes with the package."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import list_rows as rows
from autotune.cli.filters import check_fields, problems_of
from autotune.cli.options import AskedFields, Wanted, problem_options
from autotune.cli.output import CsvOption, DbOption, JsonOption, print_csv, print_json, print_table, say
from autotune.core.errors import UsageError
from autotune.core.outcome import Outcome
from autotune.core.words import format_ms
from autotune.tuning.objective import find_objective

if TYPE_CHECKING:
    from autotune.core.problem import Problem
    from autotune.store.records import StoredMeasurement
    from autotune.store.store import Store
    from autotune.tuning.objective import Objective


class What(StrEnum):
    """What can be listed."""

    PROBLEMS = "problems"
    WINNERS = "winners"
    SEARCHES = "searches"
    TRIALS = "trials"
    DEVICES = "devices"
    GPUS = "gpus"


class Sort(StrEnum):
    """What comes first."""

    NEW = "new"
    MS = "ms"


_TAKES = {
    What.PROBLEMS: {"op", "fields", "device", "limit", "db"},
    What.WINNERS: {
        "op",
        "fields",
        "device",
        "template",
        "full_precision",
        "objective",
        "sort",
        "limit",
        "shipped",
        "own",
        "db",
    },
    What.SEARCHES: {"op", "fields", "device", "sort", "limit", "db"},
    What.TRIALS: {"op", "fields", "device", "template", "outcome", "sort", "limit", "db"},
    What.DEVICES: {"device", "limit", "db"},
    What.GPUS: {"limit"},
}
"""The options that mean something for each list; others are refused."""

_MOST_TRIALS = 50


@problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    what: Annotated[What, typer.Argument(help="What to list.")] = What.WINNERS,
    *,
    op: Annotated[str | None, typer.Option("--op", help="Of this op only.")] = None,
    asked: AskedFields,
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
    objective: Annotated[
        str | None,
        typer.Option("--objective", help="Winners by time | energy | edp; by energy of your own records alone."),
    ] = None,
    sort: Annotated[
        Sort | None,
        typer.Option("--sort", help="Rows: new, or ms for the fastest first [default: new for trials]."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=2**31 - 1, help=f"Most rows [default: {_MOST_TRIALS} trials, else all]."),
    ] = None,
    shipped: Annotated[bool, typer.Option("--shipped", help="Only winners that come with the package.")] = False,
    own: Annotated[bool, typer.Option("--own", help="Only winners of the database.")] = False,
    db: DbOption = None,
    as_csv: CsvOption = False,
    as_json: JsonOption = False,
) -> None:
    """List winners, searches beside one another, problems, trials or devices of a database, or the GPUs that are known.

    Winners are yours, then those that come with the package; with --db only the database's.

    Fields of problems filter, and may be lists: --T 512,1024 --dtype fp16. What all rows have in common is said once.
    """
    filters = asked.choices()
    given = {
        "op": op, "fields": filters, "device": device, "outcome": outcome, "template": template,
        "full_precision": full_precision, "objective": objective,
        "sort": sort, "limit": limit, "shipped": shipped, "own": own, "db": db,
    }  # fmt: skip
    for name in [name for name, value in given.items() if value and name not in _TAKES[what]]:
        takers = ", ".join(other for other in What if name in _TAKES[other])
        option = f"--{next(iter(filters))}" if name == "fields" else f"--{name.replace('_', '-')}"
        raise UsageError(f"{option} means nothing for a list of {what}; it is for {takers}")
    if shipped and (db is not None or own):
        other = "--own" if own else f"--db {db}"
        raise UsageError(f"--shipped lists what comes with the package, and {other} what a database holds: give one")
    if as_csv and as_json:
        raise UsageError("--csv and --json are two forms of one list: give one of them")
    form = "csv" if as_csv else "json" if as_json else "table"
    wanted = Wanted(op, check_fields(op, filters, lambda: _known(db)), device)
    if what == What.GPUS:
        return _print_gpus(limit, form)
    if what == What.WINNERS:
        by = find_objective(objective or "time")
        if by.metered:
            records = [record for record in _by_energy(by, db, full_precision) if _is(record, wanted, template)]
        else:
            records = _winners(wanted, template, db, full_precision=full_precision, shipped=shipped, own=own)
        return _print_records(_sorted(records, sort)[:limit], form, op)
    from autotune.store import open_store

    with open_store(db, create=False) as store:
        if what == What.TRIALS:
            where: dict[str, Any] = {"op": op, "device": device, "outcome": outcome, "template": template}
            if filters:
                where["problems"] = [str(s.problem) for s in store.problems(op=op) if wanted.has(s.problem)]
            trials = store.trials(**where, limit=limit or _MOST_TRIALS, fastest=sort == Sort.MS)
            return _print_records(trials, form, op)
        made = {What.PROBLEMS: _problems, What.SEARCHES: _searches, What.DEVICES: _devices}[what](store, wanted)
    if sort is not None:
        key = (lambda row: row["best ms"] or float("inf")) if sort == Sort.MS else (lambda row: -row["id"])
        made.sort(key=key)
    return _print_rows(what, made[:limit], form, op)


_Row = dict[str, Any]

_UNHEARD = "?runs on"
"""A column that is there where a search runs, for all that can be told, on another machine."""

_COLUMNS = {
    What.PROBLEMS: ("~problem", "device", ">trials", ">ok", "outcomes", ">measured ms", ">estimated ms"),
    What.SEARCHES: (
        ">id", "device", "sampler", ">seed", "state", _UNHEARD, ">trials", ">ok", ">best ms", "kind", ">at trial",
        ">x best", "?begun", "~problem",
    ),
    What.DEVICES: ("device", "kind", "title", "arch", ">problems", ">trials", ">winners"),
}  # fmt: skip
"""Columns of the tables; JSON and CSV have the same names, and problems as objects or a column a field."""


def _names(what: What, op: str | None) -> list[str]:
    from autotune.ops.registry import get_op, op_names

    fields = [field.name for field in get_op(op).fields if not field.implied] if op in op_names() and op else []
    names = (name for name in rows.OF[what] if name not in rows.SPREAD)
    return [part for name in names for part in (("op", *fields) if name == "problem" else (name,))]


def _print_rows(what: What, made: Sequence[_Row], form: str, op: str | None) -> None:
    from autotune.report.table import column_name

    columns = tuple(name for name in _COLUMNS[what] if name != _UNHEARD or any(row[column_name(name)] for row in made))
    if form == "json":
        print_json([{**row, "problem": row["problem"].to_json()} if "problem" in row else row for row in made])
    elif form == "csv":
        print_csv([_flat(row) for row in made], _names(what, op))
    else:
        print_table(columns, [[_shown(row[column_name(column)]) for column in columns] for row in made])


def _flat(row: _Row) -> _Row:
    """A problem's fields, a configuration's parameters and counts as columns of their own."""
    flat: _Row = {}
    for name, value in row.items():
        if name == "problem":
            flat |= value.to_json()
        elif name in rows.SPREAD:
            flat |= {f"{name}.{key}": held for key, held in value.items()}
        else:
            flat[name] = value
    return flat


def _print_gpus(limit: int | None, form: str) -> None:
    from autotune.report import gpus

    if form == "table":
        print_table(gpus.COLUMNS, list(gpus.rows())[:limit])
    else:
        (print_csv if form == "csv" else print_json)(gpus.to_json()[:limit])


def _print_records(records: "Sequence[StoredMeasurement]", form: str, op: str | None) -> None:
    from autotune.report.listing import listing

    if form == "json":
        print_json([{**row, "problem": row["problem"].to_json()} for row in map(_row, records)])
    elif form == "csv":
        print_csv([_flat(_row(record)) for record in records], _names(What.TRIALS, op))
    else:
        shown = listing(records)
        for name, value in shown.shared:
            say(f"all rows: {name} {value}")
        print_table(shown.columns, shown.rows)


def _problems(store: "Store", wanted: Wanted) -> list[_Row]:
    found = store.problems(op=wanted.op)
    return [_of(rows.PROBLEM, s) for s in found if wanted.on(s.device) and wanted.has(s.problem)]


def _searches(store: "Store", wanted: Wanted) -> list[_Row]:
    found = [s for s in store.searches() if wanted.on(s.search.device) and wanted.has(s.search.problem)]
    return [_of(rows.SEARCH, one) for one in rows.beside_each_other(found)]


def _devices(store: "Store", wanted: Wanted) -> list[_Row]:
    return [_of(rows.DEVICE, d) for d in store.devices() if wanted.on(d.name)]


def _winners(
    wanted: Wanted, template: str | None, db: str | None, *, full_precision: bool, shipped: bool, own: bool
) -> "list[StoredMeasurement]":
    """Those of the database, then, unless it is named, those that come with the package."""
    records: list[StoredMeasurement] = []
    if not shipped and db is None and not own and _no_database():
        typer.echo("no database yet: these winners come with the package", err=True)
    elif not shipped:
        records = _own_winners(db, full_precision=full_precision)
    if not own and db is None:
        records += _shipped_winners(full_precision=full_precision)
    return [record for record in records if _is(record, wanted, template)]


def _is(record: "StoredMeasurement", wanted: Wanted, template: str | None) -> bool:
    named = template in {None, record.candidate.template}
    return named and wanted.has(record.problem) and wanted.on(record.device)


def _by_energy(objective: "Objective", db: str | None, full_precision: bool) -> "list[StoredMeasurement]":
    """Of each problem and device of the database the record that is best by its energy."""
    from autotune.store import open_store
    from autotune.store.choosing import best_by, full_versions

    with open_store(db, create=False) as store:
        found = []
        for summary in store.problems():
            versions = full_versions(summary.problem.op) if full_precision else None
            found.append(best_by(store, summary.problem, summary.device, objective.cost, versions))
        return [record for record in found if record is not None]


def _own_winners(db: str | None, *, full_precision: bool) -> "list[StoredMeasurement]":
    from autotune.store import open_store
    from autotune.store.choosing import of_full_precision

    with open_store(db, create=False) as store:
        records = [winner.record for winner in store.winners()]
        return list(of_full_precision(store, records)) if full_precision else records


def _shipped_winners(*, full_precision: bool) -> "list[StoredMeasurement]":
    """Of a problem that has several, of families with different arithmetic, all."""
    from autotune.store.choosing import full_versions
    from autotune.store.shipped import shipped_winners

    return [
        line.stored()
        for line in shipped_winners()
        if not full_precision or line.candidate.template in full_versions(line.problem.op)
    ]


def _known(db: str | None) -> "list[Problem]":
    """The problems of the database, if there is one."""
    from autotune.store import open_store

    if db is None and _no_database():
        return []
    with open_store(db, create=False) as store:
        return list(problems_of(store)())


def _no_database() -> bool:
    """Whether the user's database is a file that is still to be made."""
    from autotune.store.location import database_url, sqlite_path

    path = sqlite_path(database_url())
    return path is not None and not path.exists()


def _sorted(records: "list[StoredMeasurement]", sort: Sort | None) -> "list[StoredMeasurement]":
    if sort == Sort.MS:
        return sorted(records, key=lambda record: record.measurement.ms or 0.0)
    return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True) if sort else records


def _row(record: "StoredMeasurement") -> _Row:
    return _of(rows.TRIAL, record)


def _of(columns: rows.Columns[Any], found: Any) -> _Row:
    return {name: get(found) for name, get in columns.items()}


def _shown(cell: Any) -> object:
    if isinstance(cell, dict):
        return " ".join(f"{name}:{count}" for name, count in sorted(cell.items()))
    return format_ms(cell) if isinstance(cell, float) else cell
