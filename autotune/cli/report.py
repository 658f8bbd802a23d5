"""`autotune report`: a database as one page to look at."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import AskedFields, Wanted, problem_options
from autotune.cli.output import DbOption, JsonOption, print_json, say
from autotune.core.errors import UsageError
from autotune.core.words import format_bytes, number

if TYPE_CHECKING:
    from autotune.answers.ncu_table import Profile
    from autotune.report.page.peer_rows import PeerRow
    from autotune.report.page.sections import Section


@problem_options()
def command(  # noqa: PLR0913 - one parameter an option
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write or replace.")] = Path("report.html"),
    *,
    op: Annotated[str | None, typer.Option("--op", help="Of this op only.")] = None,
    asked: AskedFields,
    device: Annotated[
        str | None, typer.Option("--device", help="On this device only, as records name it: h200, cpu:h200.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template", help="Of this family only: a name, or a .cu.j2 file of your own, whose source it shows."
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="module:function of that file's op, if it does not name it.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=200, help="Most problems, those with the newest trials [default: 12]."),
    ] = None,
    examine: Annotated[
        bool,
        typer.Option(
            "--examine/--no-examine",
            help="Run the checker on each winner and count the work of the fastest: seconds each, needs g++.",
        ),
    ] = True,
    peers: Annotated[
        list[Path] | None,
        typer.Option("--peers", help="Times of others: what autotune bench --json wrote. Repeatable."),
    ] = None,
    ncu: Annotated[
        list[Path] | None,
        typer.Option("--ncu", help="Counters: what autotune profile, or ncu --csv, wrote. Repeatable."),
    ] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained page: winners, searches, parameters, roofline, peers, the checker's lines, sources.

    The page loads nothing from anywhere. Fields of problems filter, and may be lists: --T 512,1024. Needs the extra
    `report`.
    """
    from autotune.answers.ncu_table import read_profile
    from autotune.report.page.document import Page, Part, render_page, require_libraries
    from autotune.report.page.examined import Examined, examine_section, source_of
    from autotune.report.page.peer_rows import read_peers
    from autotune.report.page.sections import MOST, Families, gather
    from autotune.store import open_store

    require_libraries()
    _require_folder(output)
    rows = [row for path in peers or () for row in read_peers(path)]
    profiles = [read_profile(path) for path in ncu or ()]
    families, wanted = Families(template, reference), Wanted(op, asked.choices(), device)
    with open_store(db, create=False) as store:
        sections, left_out = gather(
            store, lambda problem, name: wanted.has(problem) and wanted.on(name), families, limit or MOST
        )
        location = store.location
    if not sections:
        raise UsageError(
            f"no trial in {location} is of what was asked for; `autotune list problems` shows what there is"
        )
    parts = [
        Part(
            section, source_of(section, families),
            examine_section(section, families, db, _progress) if examine else Examined(why="--no-examine"),
            _peers_of(section, sections, rows), _profiles_of(section, sections, profiles),
        )
        for section in sections
    ]  # fmt: skip
    loose = [row for row in rows if not any(row in part.peers for part in parts)]
    other = [profile for profile in profiles if not any(profile in part.profiles for part in parts)]
    page = render_page(Page(location, parts, _filters(op, asked, device, template), left_out, loose, other))
    _write(output, page)
    if as_json:
        print_json(_json(output, page, sections, left_out))
        return
    say(f"wrote {output}: {number(len(sections), 'problem')}, {format_bytes(len(page.encode()))}")
    if left_out:
        say(f"{number(left_out, 'more problem')} left out: --limit, or filters, choose others")


def _progress(text: str) -> None:
    from autotune.core.words import printable

    typer.echo(printable(text), err=True)


def _filters(op: str | None, asked: AskedFields, device: str | None, template: str | None) -> str:
    said = [] if op is None else [f"op {op}"]
    said += [f"{name}={','.join(map(str, values))}" for name, values in asked.choices().items()]
    said += [] if device is None else [f"device {device}"]
    said += [] if template is None else [f"template {template}"]
    return " ".join(said) and f"only {' '.join(said)}"


def _peers_of(section: "Section", sections: "Sequence[Section]", rows: "Sequence[PeerRow]") -> "list[PeerRow]":
    """Those of its problem; where the page has one section, those that say nothing of a problem, too."""
    return [row for row in rows if row.is_of(section) or (len(sections) == 1 and not row.fields)]


def _profiles_of(section: "Section", sections: "Sequence[Section]", profiles: "Sequence[Profile]") -> "list[Profile]":
    return [
        profile for profile in profiles
        if (profile.about.get("problem") == section.problem.key if profile.about else len(sections) == 1)
    ]  # fmt: skip


def _require_folder(output: Path) -> None:
    if output.is_dir():
        raise UsageError(f"{output} is a folder; name a file, such as {output / 'report.html'}")
    if not output.parent.is_dir():
        raise UsageError(f"the folder {output.parent} does not exist; make it, or write elsewhere with --output")


def _write(output: Path, page: str) -> None:
    from autotune.core.files import written

    with written(output) as file:
        file.write(page)


def _json(output: Path, page: str, sections: "Sequence[Section]", left_out: int) -> dict[str, Any]:
    return {
        "file": str(output), "bytes": len(page.encode()), "left_out": left_out,
        "problems": [
            {
                "problem": s.problem.to_json(), "device": s.identity.name, "kind": s.kind, "trials": len(s.trials),
                "winner": None if s.winner is None else {
                    "id": s.winner.id, "template": s.winner.candidate.template, "config": s.winner.candidate.config,
                    "ms": s.winner.measurement.ms,
                },
            }
            for s in sections
        ],
    }  # fmt: skip
