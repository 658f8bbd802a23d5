"""Join the records of several searches, and write the winners that ship with the package.

    python -m benchmarks.merge_winners shard0/records.jsonl.gz shard1/records.jsonl.gz [-o db/winners/h200.jsonl]

Inputs are files of JSON lines (compressed if their names end in .gz) or databases. A winner is shipped if its template
is as it was measured; where its family does not multiply in full precision, the best of those that do ships beside it.
What ships already stays where nothing newer is known and its configuration is still valid.
"""

import argparse
import gzip
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from autotune.core.errors import AutotuneError
from autotune.core.problem import Problem
from autotune.core.resources import resource_root
from autotune.families.space import Space
from autotune.families.template import builtin_templates
from autotune.store import Store, open_store
from autotune.store.choosing import best_of, full_versions
from autotune.store.json_lines import Line, as_winner
from autotune.store.line_files import read_lines, write_lines
from autotune.store.transfer import export_lines, import_lines, line_of
from benchmarks.rows import Row, default_rows, full_rows, peer_rows


def lines_of(path: Path) -> Iterator[Line]:
    """All records of a database or of a file of JSON lines.

    Raises:
        UsageError: the file cannot be read, or a line is not sound.
    """
    if path.suffix in {".db", ".sqlite"}:
        with open_store(path, create=False) as store:
            yield from export_lines(store, winners_only=False)
    elif path.suffix == ".gz":
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(gzip.decompress(path.read_bytes()))
            file.flush()
            yield from read_lines(Path(file.name))
    else:
        yield from read_lines(path)


def merged(store: Store, paths: Iterable[Path]) -> int:
    """Import everything into a store; returns how many records it did not know."""
    return sum(import_lines(store, lines_of(path)).added for path in paths)


def is_current(line: Line) -> bool:
    """Whether a record's template is as it was measured."""
    today = {template.name: template.hash for template in builtin_templates(line.problem.op)}
    return today.get(line.candidate.template) == line.candidate.template_hash


def is_valid(line: Line) -> bool:
    """Whether a record's configuration is still one of its family's."""
    template = next((t for t in builtin_templates(line.problem.op) if t.name == line.candidate.template), None)
    if template is None or template.why_unsupported(line.problem, line.identity.spec) is not None:
        return False
    return Space(template, line.problem, line.identity.spec).contains(line.candidate.config)


def winners_of(store: Store, gpu: str) -> Iterator[Line]:
    """A store's winners on a GPU, and beside each that is not of full precision the best that is."""
    for line in export_lines(store, device=gpu, winners_only=True):
        yield line
        if not is_full(line):
            record = best_of(store, line.problem, gpu, full_versions(line.problem.op), spills=False)
            if record is not None:
                yield as_winner(line_of(record, line.identity))


def is_full(line: Line) -> bool:
    """Whether a record's family multiplies in full precision."""
    return line.candidate.template in full_versions(line.problem.op)


def shipped(found: Iterable[Line], before: Iterable[Line], gpu: str) -> list[Line]:
    """Winners to ship: those found for the GPU that are current, then those shipped before that are still valid.

    A problem has two where the fastest is not of full precision. One that is found takes the place of all that shipped
    for its problem, but where it is not of full precision, and none was found that is, such a one stays.
    """
    standing = [line for line in before if line.identity.name == gpu and is_valid(line)]
    fresh = [line for line in found if line.is_winner and line.identity.name == gpu and is_current(line)]
    known = {line.problem for line in fresh}
    kept = [line for line in standing if line.problem not in known or is_full(line)]
    chosen: dict[tuple[Problem, bool], Line] = {}
    for line in [*kept, *fresh]:
        chosen[line.problem, is_full(line)] = line
    lines = [line for line in chosen.values() if not _needless(line, chosen)]
    return sorted(lines, key=lambda line: (*_order(line.problem.fields, line.problem.op), is_full(line)))


def _needless(line: Line, chosen: Mapping[tuple[Problem, bool], Line]) -> bool:
    """Whether a winner is neither of full precision nor faster than the one that is."""
    full = chosen.get((line.problem, True))
    return full is not None and not is_full(line) and _ms(full) <= _ms(line)


def _ms(line: Line) -> float:
    return line.measurement.ms or math.inf


def _order(fields: Mapping[str, object], op: str) -> tuple[object, ...]:
    dtypes = ("fp16", "bf16", "fp32")
    sizes = [fields[name] for name in ("HS", "causal", "T", "B", "NH")]
    return (op != "forward", dtypes.index(str(fields["dtype"])), *sizes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge, write, and say which rows have no winner that is current. Returns their number."""
    parser = argparse.ArgumentParser(description="join records and write the winners that ship")
    parser.add_argument("inputs", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("-o", "--output", type=Path, default=None, help="default: db/winners/GPU.jsonl")
    parser.add_argument("--db", type=Path, default=None, help="keep the joined database here")
    options = parser.parse_args(arguments)
    output = options.output or resource_root("db") / "winners" / f"{options.gpu}.jsonl"
    before = list(read_lines(output)) if output.exists() else []
    with tempfile.TemporaryDirectory() as folder, open_store(options.db or Path(folder) / "joined.db") as store:
        added = merged(store, options.inputs)
        winners = shipped(winners_of(store, options.gpu), before, options.gpu)
    count = write_lines(output, winners)
    missing = [row.label for row in (*peer_rows(), *default_rows(), *full_rows()) if not _covered(row, winners)]
    print(f"{added} records joined; {count} winners in {output}")
    print("\n".join(f"no current winner: {label}" for label in missing))
    return len(missing)


def _covered(row: Row, winners: Iterable[Line]) -> bool:
    return any(
        line.problem == row.problem and is_current(line) and (is_full(line) or not row.full_precision)
        for line in winners
    )


if __name__ == "__main__":
    try:
        raise SystemExit(min(1, main()))
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
