"""`autotune db starts`: where searches begin, checked, and written from records."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.output import DbOption, JsonOption, print_json, print_table, say
from autotune.core.errors import UsageError
from autotune.core.values import format_config

if TYPE_CHECKING:
    from autotune.answers.starting import Regime
    from autotune.families.template import Template
    from autotune.store.json_lines import Line

app = typer.Typer(help="Where searches begin: starts of kernel families, beside their templates.", no_args_is_help=True)

OpOption = Annotated[str | None, typer.Option("--op", help="Families of this op only.")]
TemplateOption = Annotated[
    str | None, typer.Option("--template", help="This family only: a shipped one by name, or a file of your own.")
]


@app.command("check")
def check_command(op: OpOption = None, template: TemplateOption = None, as_json: JsonOption = False) -> None:
    """Check that every start holds for the problem it names, on its GPU, is valid there, and repeats no other.

    Exit code 1 where one does not.
    """
    from autotune.answers.starting import faults

    families = _families(op, template)
    found = [(family, list(faults(family))) for family in families]
    if as_json:
        print_json([{**_named(family), "starts": len(family.starts), "faults": wrong} for family, wrong in found])
    else:
        for family, wrong in found:
            for fault in wrong:
                say(f"{family.op} {family.name}: {fault}")
        count = sum(len(family.starts) for family in families)
        say(f"{count} starts of {len(families)} families, {sum(len(wrong) for _, wrong in found)} faults")
    if any(wrong for _, wrong in found):
        raise typer.Exit(1)


@app.command("propose")
def propose_command(
    op: OpOption = None, template: TemplateOption = None, db: DbOption = None, as_json: JsonOption = False
) -> None:
    """Show how many winners searches begin with, by kinds of problems, and which start would add most of the others."""
    from autotune.answers.starting import regimes

    found = list(regimes(_families(op, template), list(_winners(db))))
    if as_json:
        print_json([_regime(one) for one in found])
        return
    columns = [
        "family",
        "device",
        "where",
        ">winners",
        ">begun with",
        ">most of the others",
        "record",
        "~configuration",
    ]
    print_table(columns, [_regime_row(one) for one in found])
    add = next((one for one in found if one.missing is not None), None)
    if add is not None:
        say(f"\nnext: {shlex.join(['autotune', 'db', 'starts', 'add', add.source_hash, '--when', add.when])}")


@app.command("add")
def add_command(
    record: Annotated[str, typer.Argument(metavar="ID", help="A record's number, or the source hash of a winner.")],
    when: Annotated[
        str, typer.Option("--when", help="Where to begin with it: an expression over the problem and the device.")
    ],
    at: Annotated[
        int | None, typer.Option("--at", min=1, help="Its place among the family's starts [default: the last].")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Why.")] = "",
    template: TemplateOption = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a record's configuration to the starts of its family, in the file beside the template."""
    from autotune.answers.starting import start_of, with_start
    from autotune.core.files import written
    from autotune.core.resources import in_checkout
    from autotune.families.starts import SUFFIX, starts_text
    from autotune.families.template import find_template, load_template, names_file

    line = _record(record, when, db)
    own = template is not None and names_file(template)
    if not own and not in_checkout():
        raise UsageError("an installed package's starts stay as they are; --template names a file of your own")
    shipped = template or line.candidate.template
    path = Path(template) if template is not None and own else find_template(line.problem.op, shipped).path
    family = load_template(path)  # as the files are now
    if family.name != line.candidate.template:
        raise UsageError(f"record {record} is of {line.candidate.template}, not of {family.name}")
    start = replace(start_of(family, line, when), note=note)
    beside = family.path.with_name(family.name + SUFFIX)
    starts = with_start(family, start, at)
    with written(beside) as file:
        file.write(starts_text(starts))
    place = starts.index(start) + 1
    if as_json:
        print_json({**_named(family), "file": str(beside), "place": place, "values": dict(start.values)})
    else:
        say(f"start {place} of {len(starts)} in {beside}: {format_config(dict(start.values))}")


def _families(op: str | None, template: str | None) -> "Sequence[Template]":
    from autotune.families.template import builtin_templates, load_template, names_file
    from autotune.ops.registry import BUILTIN, get_op

    if template is not None and names_file(template):
        return (load_template(Path(template)),)
    families = [family for name in ([get_op(op).name] if op else BUILTIN) for family in builtin_templates(name)]
    chosen = [family for family in families if template in {None, family.name}]
    if not chosen:
        raise UsageError(f"there is no family {template!r}; there are {', '.join(family.name for family in families)}")
    return chosen


def _winners(db: str | None) -> "Iterator[Line]":
    """The user's own, where there is a database, then those that ship."""
    from autotune.core.database_files import check_file, plain_path
    from autotune.core.settings import database
    from autotune.store import open_store
    from autotune.store.shipped import shipped_winners
    from autotune.store.transfer import export_lines

    path = plain_path(db or database())
    if db is not None or path is None or check_file(path):
        with open_store(db, create=False) as store:
            yield from export_lines(store, winners_only=True)
    yield from shipped_winners()


def _record(text: str, when: str, db: str | None) -> "Line":
    """By its number in the database; else the first winner of this source for which `when` holds."""
    from autotune.families.expressions import Expression
    from autotune.store import open_store
    from autotune.store.json_lines import as_winner
    from autotune.store.transfer import Identities, line_of

    if text.isdecimal() and len(text) < 16:
        with open_store(db, create=False) as store:
            found = store.measurement(int(text))
            if found is None:
                raise UsageError(f"there is no record {text} in {store.location}")
            line = line_of(found, Identities(store)[found.device])
            timing = found.measurement.timing
            winner = None if timing is None else store.winner(found.problem, found.device, timing.kind)
        return as_winner(line) if winner is not None and winner.record.id == found.id else line
    expression = Expression(when)
    for line in _winners(db):
        if line.source_hash == text and expression({**line.problem.fields, "device": line.identity.spec}):
            return line
    raise UsageError(f"no winner has the source {text!r} and a problem for which {when!r} holds")


def _named(family: "Template") -> dict[str, Any]:
    return {"op": family.op, "template": family.name}


def _regime(one: "Regime") -> dict[str, Any]:
    return {
        "op": one.op,
        "template": one.template,
        "device": one.device,
        "when": one.when,
        "winners": one.winners,
        "begun_with": one.begun_with,
        "missing": None if one.missing is None else one.missing.config,
        "times": one.times,
        "record": one.source_hash or None,
    }


def _regime_row(one: "Regime") -> tuple[object, ...]:
    head = (f"{one.op} {one.template}", one.device, one.when, one.winners, one.begun_with)
    return (*head, "", "", "") if one.missing is None else (*head, one.times, one.source_hash, one.missing)
