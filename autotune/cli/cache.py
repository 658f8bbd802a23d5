"""`autotune cache`: what the build cache holds, and making room."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.output import JsonOption, print_json, print_pairs, print_table, say
from autotune.core.settings import cache_folder, cache_limit, read_size
from autotune.core.words import format_bytes, number

if TYPE_CHECKING:
    from autotune.compilers.upkeep import CacheEntry

app = typer.Typer(help="Show the build cache, or make room in it.", no_args_is_help=True)


@app.command("show")
def show_command(as_json: JsonOption = False) -> None:
    """Show where builds are cached, what they take, what is in use, and who else can write there.

    The cache keeps within AUTOTUNE_CACHE_LIMIT (500M, 20G, none) by itself: what was used least recently goes first.
    """
    from autotune.compilers.upkeep import entries, in_use, litter, who_else

    root, limit = cache_folder().absolute(), cache_limit()
    used = in_use(root)
    found = list(entries(root))
    others = who_else(root)
    kinds = {kind: [one for one in found if one.kind == kind] for kind in sorted({one.kind for one in found})}
    left = sum(1 for _ in litter(root))
    if as_json:
        print_json(
            {
                "folder": str(root),
                "bytes": sum(one.nbytes for one in found),
                "limit": limit,
                "entries": len(found),
                "in_use": sum(one.name in used for one in found),
                "kinds": {kind: _sums(ones, used) for kind, ones in kinds.items()},
                "litter": left,
                "others": others or None,
            }
        )
        return
    print_pairs(
        [
            ("folder", root),
            ("size", f"{format_bytes(sum(one.nbytes for one in found))} in {number(len(found), 'build')}"),
            ("limit", "none" if limit is None else format_bytes(limit)),
            ("litter", number(left, "thing") + " that killed processes left" if left else ""),
            ("writable by", f"{others}: builds are code that runs with your rights" if others else ""),
        ]
    )
    if found:
        typer.echo()
        print_table(["kind", ">builds", ">size", ">in use", ">last used"], [_row(k, o, used) for k, o in kinds.items()])


@app.command("clean")
def clean_command(
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="SIZE", help="Keep so much, what was used last: 500M, 2G [default: nothing]."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove builds that nobody uses, and what killed processes have left. Searches may run meanwhile."""
    from autotune.compilers.upkeep import clean

    root = cache_folder().absolute()
    size = 0 if limit is None else read_size(limit, "--limit")
    done = clean(root, 2**63 if size is None else size)
    if as_json:
        print_json(
            {
                "folder": str(root), "removed": done.removed, "litter": done.litter, "bytes": done.nbytes,
                "in_use": len(done.kept),
            }
        )  # fmt: skip
        return
    said = f"{number(done.removed, 'build')} removed, {format_bytes(done.nbytes)} freed"
    said += f", {number(done.litter, 'thing')} that killed processes had left" if done.litter else ""
    say(said + (f"; {number(len(done.kept), 'build')} in use stay" if done.kept else ""))


def _sums(found: "Sequence[CacheEntry]", used: set[str]) -> dict[str, Any]:
    return {
        "entries": len(found),
        "bytes": sum(one.nbytes for one in found),
        "in_use": sum(one.name in used for one in found),
        "last_used": max(one.used_at for one in found),
    }


def _row(kind: str, found: "Sequence[CacheEntry]", used: set[str]) -> tuple[object, ...]:
    sums = _sums(found, used)
    last = time.strftime("%Y-%m-%d %H:%M", time.localtime(sums["last_used"]))
    return kind, sums["entries"], format_bytes(sums["bytes"]), sums["in_use"], last
