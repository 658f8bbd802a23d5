"""`autotune db`: export, import and upgrade a database, forget what is in it, and check it again."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import starts
from autotune.cli.filters import check_op, problems_of
from autotune.cli.output import DbOption, JsonOption, print_json, say
from autotune.core.errors import AutotuneError, UsageError
from autotune.core.files import written
from autotune.core.outcome import Outcome
from autotune.core.passwords import hidden
from autotune.core.words import number

if TYPE_CHECKING:
    from autotune.answers.recheck import Rechecked
    from autotune.store.store import Store


class Form(StrEnum):
    """How an export is written."""

    LINES = "lines"
    KERNEL_TUNER = "kernel-tuner"
    T4 = "t4"


app = typer.Typer(help="Export, import, upgrade or check a database, or forget records.", no_args_is_help=True)
app.add_typer(starts.app, name="starts")


@app.command("export")
def export_command(  # noqa: PLR0913, PLR0917 - one parameter an option
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write [default: stdout].")] = None,
    winners: Annotated[bool, typer.Option("--winners", help="Only the winners: one a problem and device.")] = False,
    op: Annotated[str | None, typer.Option("--op", help="Of this op only.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="On this device only: h200, cpu:h200.")] = None,
    form: Annotated[
        Form,
        typer.Option("--format", help="lines, or the trials of one problem, device and family for another tuner."),
    ] = Form.LINES,
    template: Annotated[
        str | None, typer.Option("--template", help="With another format: trials of this family.")
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option("--problem", help="With another format: of this problem, as `autotune list` writes it."),
    ] = None,
    optuna: Annotated[
        str | None,
        typer.Option(
            "--optuna",
            metavar="URL",
            help="Mirror searches into an Optuna storage, for optuna-dashboard: a SQLAlchemy URL, or a journal file.",
        ),
    ] = None,
    db: DbOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: what was written, or without -o the records as one list.")
    ] = False,
) -> None:
    """Write records as JSON lines: every measurement, then the winners; or mirror searches into an Optuna storage."""
    from autotune.store import open_store
    from autotune.store.transfer import export_file, export_lines

    with open_store(db, create=False) as store:
        check_op(op, problems_of(store))
        if optuna is not None:
            if winners or output or template or form is not Form.LINES:
                raise UsageError(
                    "--optuna takes whole searches: leave out --output, --winners, --format and --template"
                )
            _mirror(store, optuna, op, device, problem, as_json)
            return
        if form is not Form.LINES:
            if winners:
                raise UsageError("--winners means nothing for a recording: it is made of trials")
            _export_recording(store, output, form, op, device, template, problem, as_json)
            return
        if template or problem:
            raise UsageError("--template and --problem are for --format kernel-tuner and t4")
        if output is None:
            lines = (line.text() for line in export_lines(store, op=op, device=device, winners_only=winners))
            for text in _as_list(lines) if as_json else lines:
                typer.echo(text)
            return
        count = export_file(store, output, op=op, device=device, winners_only=winners)
    if as_json:
        print_json({"lines": count, "file": str(output)})
    else:
        say(f"{number(count, 'line')} written to {output}")


def _mirror(
    store: "Store", target: str, op: str | None, device: str | None, problem: str | None, as_json: bool
) -> None:
    import shlex

    from autotune.tuning.mirroring import mirror_searches

    searches = [
        summary for summary in store.searches()
        if op in {None, summary.search.problem.op} and device in {None, summary.search.device}
        and problem in {None, summary.search.problem.key}
    ]  # fmt: skip
    mirrored = mirror_searches(store, searches, target)
    if as_json:
        print_json(
            [{"study": m.study, "added": m.added, "known": m.known, "anew": m.anew, "outcomes": dict(m.outcomes)}
             for m in mirrored]
        )  # fmt: skip
        return
    for one in mirrored:
        said = ", ".join(f"{outcome} {count}" for outcome, count in one.outcomes.items())
        again = "; made anew, since records have changed" if one.anew else ""
        say(f"{one.study}: {number(one.added, 'trial')} added, {one.known} there already ({said or 'no trial'}){again}")
    count = f"{len(mirrored)} {'study' if len(mirrored) == 1 else 'studies'}"
    say(f"{count}; next: optuna-dashboard {shlex.quote(hidden(target))}")


def _export_recording(
    store: "Store", output: Path | None, form: Form, op: str | None, device: str | None, template: str | None,
    problem: str | None, as_json: bool,
) -> None:  # fmt: skip
    from autotune.devices.recorded import of_lines
    from autotune.store.transfer import export_lines

    lines = [
        line for line in export_lines(store, op=op, device=device, winners_only=False)
        if line.record == "measurement" and template in (None, line.candidate.template)
        and problem in (None, line.problem.key)
    ]  # fmt: skip
    recording = of_lines(lines, "the database")
    text = recording.text(form.value)
    if output is None:
        typer.echo(text, nl=False)
        return
    with written(output) as file:
        file.write(text)
    if as_json:
        print_json({"configurations": len(recording.results), "file": str(output)})
    else:
        say(f"{number(len(recording.results), 'configuration')} written to {output}")


def _as_list(lines: Iterable[str]) -> Iterator[str]:
    """JSON documents as one JSON list, line by line."""
    opening = "["
    for line in lines:
        yield f"{opening}{line}"
        opening = ","
    yield "]" if opening == "," else "[]"


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(help="JSON lines, as `autotune db export` writes them.")],
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify the records of a file, all before the first is added, then add them. What is there already stays as it is.

    Records are committed 500 at a time, so that running searches go on. An import that was interrupted has added the
    first of them; the same command adds the rest.
    """
    from autotune.store import open_store
    from autotune.store.line_files import read_lines
    from autotune.store.transfer import import_lines

    lines = list(read_lines(file))  # before a database is made for them
    if not lines:
        raise AutotuneError(f"there is no record in {file}; nothing was imported")
    with open_store(db) as store:
        report = import_lines(store, lines)
    if as_json:
        print_json({"added": report.added, "known": report.known, "winners": report.winners})
    else:
        winners = f"{number(report.winners, 'winner')} {'stands' if report.winners == 1 else 'stand'}"
        say(f"{number(report.added, 'record')} added, {report.known:,} known already, {winners}")


@app.command("forget")
def forget_command(  # noqa: PLR0913, PLR0917 - one parameter an option
    ids: Annotated[
        list[int] | None, typer.Argument(help="Numbers of records, as `autotune list trials` shows.")
    ] = None,
    outcome: Annotated[
        list[Outcome] | None, typer.Option("--outcome", help="Of this outcome: crash, timeout. Repeatable.")
    ] = None,
    op: Annotated[str | None, typer.Option("--op", help="Of this op only.")] = None,
    problem: Annotated[
        str | None, typer.Option("--problem", help="Of this problem only, as `autotune list` writes it.")
    ] = None,
    template: Annotated[str | None, typer.Option("--template", help="Of this family only.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="On this device only: h200, cpu:h200.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be forgotten, and forget nothing.")
    ] = False,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget records: the next search evaluates their candidates anew. All that is given must be true of a record.

    Where a winner is among them the best of what is left takes its place.
    """
    from autotune.store import open_store

    where = {"outcome": outcome or None, "op": op, "problem": problem, "template": template, "device": device}
    if not ids and not any(where.values()):
        raise UsageError("name what to forget: numbers of records, --outcome, --op, --problem, --template or --device")
    with open_store(db, create=False) as store:
        check_op(op, problems_of(store))
        found = store.forget(where, ids or (), dry=dry_run)
    if as_json:
        print_json({"forgotten": dict(found.outcomes), "winners_replaced": found.replaced, "winners_gone": found.gone})
        return
    said = ", ".join(f"{name} {count}" for name, count in sorted(found.outcomes.items()))
    total = number(sum(found.outcomes.values()), "record")
    say(f"{total} {'would be ' if dry_run else ''}forgotten{': ' if said else ''}{said}")
    if found.replaced or found.gone:
        say(f"winners among them: {found.replaced} replaced by the best that is left, {found.gone} without another")


@app.command("upgrade")
def upgrade_command(db: DbOption = None, as_json: JsonOption = False) -> None:
    """Bring a database made by an older autotune to the newest schema."""
    from autotune.store.opening import open_engine
    from autotune.store.schema import upgrade

    engine = open_engine(db, create=False)
    try:
        before, after = upgrade(engine)
    finally:
        engine.dispose()
    if as_json:
        print_json({"before": before, "after": after})
    elif before == after:
        say(f"the schema is the newest already ({after})")
    else:
        say(f"schema upgraded from {before or 'none'} to {after}")


@app.command("recheck")
def recheck_command(  # noqa: PLR0913, PLR0917 - one parameter an option
    own: Annotated[bool, typer.Option("--own/--no-own", help="The winners of the database, if there is one.")] = True,
    shipped: Annotated[bool, typer.Option("--shipped/--no-shipped", help="The winners that ship.")] = True,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Record the machine code of winners that lack it, where their text is today's."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be recorded, and record nothing.")] = False,
    template: Annotated[
        list[Path] | None, typer.Option("--template", help="A family of your own whose winners are looked at, too.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="module:function of its op, where that is your own.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Builds at a time [default: one a core].")] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build the winners from today's templates and compare their machine code with what was measured. Needs no GPU.

    A winner whose template has changed while its machine code has not is renewed: look-ups answer with it as before.
    Winners that ship are written to `db/winners` in a checkout only. Exit code 1 where any winner's machine code has
    changed.
    """
    from autotune.answers.recheck import Way, recheck_file, recheck_store
    from autotune.compilers.cache import BuildCache
    from autotune.core.database_files import check_file, plain_path
    from autotune.core.resources import in_checkout
    from autotune.core.settings import database
    from autotune.families.op_ref import load_own
    from autotune.store import open_store
    from autotune.store.shipped import shipped_files

    families = [load_own(path, reference) for path in template or ()]
    way = Way(BuildCache(), adopt, families, jobs, write=not dry_run)
    found: dict[str, list[Rechecked]] = {}
    path = plain_path(db or database())
    if own and (db is not None or path is None or check_file(path)):
        with open_store(db, create=False) as store:
            found[store.location] = recheck_store(store, way)
    for file in shipped_files() if shipped else ():
        found[str(file)] = recheck_file(file, replace(way, write=way.write and in_checkout()))
    if as_json:
        print_json([_rechecked(where, one) for where, standing in found.items() for one in standing])
    else:
        for where, standing in found.items():
            _print_standing(where, standing)
    if any(one.standing == "changed" for standing in found.values() for one in standing):
        raise typer.Exit(1)


def _rechecked(where: str, one: "Rechecked") -> dict[str, Any]:
    shown = one.now or one.line
    return {
        "in": where,
        "device": one.line.identity.name,
        "problem": one.line.problem.to_json(),
        "template": one.line.candidate.template,
        "config": one.line.candidate.config,
        "standing": one.standing,
        "why": one.why,
        "template_hash": shown.candidate.template_hash,
        "source_hash": shown.source_hash,
        "machine_code": shown.measurement.machine_code,
    }


def _print_standing(where: str, found: "list[Rechecked]") -> None:
    counts = Counter(one.standing for one in found)
    said = ", ".join(f"{count} {standing}" for standing, count in counts.most_common())
    say(f"{where}: {len(found)} winner{'' if len(found) == 1 else 's'}{': ' if said else ''}{said}")
    for one in found:
        if one.standing == "changed":
            line = one.line
            say(f"  changed: {line.problem} on {line.identity.name}, {line.candidate.template}: {one.why}")
    left = Counter(
        (one.standing, one.why) for one in found if one.standing in {"unknown", "other compiler", "no family"}
    )
    for (standing, why), count in left.items():
        say(f"  {count} {standing}: {why}")
