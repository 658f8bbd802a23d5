"""Join the records of several searches, and write the winners that ship with the package.

    python -m benchmarks.merge_winners shard0/records.jsonl.gz shard1/records.jsonl.gz [-o db/winners/h200.jsonl]

Inputs are files of JSON lines (compressed if their names end in .gz) or databases. A winner is shipped if its template
is as it was measured. What ships already stays where nothing newer is known and its configuration is still valid.
"""

import argparse
import gzip
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.resources import resource_root
from autotune.space import Space
from autotune.store import Store, open_store
from autotune.store.linefile import read_lines, write_lines
from autotune.store.lines import Line
from autotune.store.transfer import export_lines, import_lines
from autotune.template import builtin_templates
from benchmarks.rows import default_rows, peer_rows


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


def shipped(found: Iterable[Line], before: Iterable[Line], gpu: str) -> list[Line]:
    """Winners to ship: those found for the GPU that are current, then those shipped before that are still valid."""
    chosen = {line.problem: line for line in before if line.identity.name == gpu and is_valid(line)}
    chosen |= {
        line.problem: line for line in found if line.is_winner and line.identity.name == gpu and is_current(line)
    }
    return sorted(chosen.values(), key=lambda line: _order(line.problem.fields, line.problem.op))


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
        winners = shipped(export_lines(store, winners_only=True), before, options.gpu)
    count = write_lines(output, winners)
    missing = [row.label for row in (*peer_rows(), *default_rows()) if not _covered(row.problem.key, winners)]
    print(f"{added} records joined; {count} winners in {output}")
    print("\n".join(f"no current winner: {label}" for label in missing))
    return len(missing)


def _covered(key: str, winners: Iterable[Line]) -> bool:
    return any(line.problem.key == key and is_current(line) for line in winners)


if __name__ == "__main__":
    try:
        raise SystemExit(min(1, main()))
    except AutotuneError as error:
        raise SystemExit(f"error: {error}") from None
