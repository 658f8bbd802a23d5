"""Export and import of a store's records."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.gpus.identity import DeviceIdentity
from autotune.store import recording
from autotune.store.json_lines import Line, as_winner
from autotune.store.line_files import read_lines, write_lines
from autotune.store.records import StoredMeasurement
from autotune.store.rows import candidate_row, device_row, problem_row, to_identity
from autotune.store.store import Store
from autotune.store.tables import Device, MeasurementRow

PIECE = 500
"""Records that an import commits at a time: a second or two, in which nobody else writes."""


@dataclass
class ImportReport:
    """What an import did; `known` records were there already."""

    added: int = 0
    known: int = 0
    winners: int = 0


def export_lines(
    store: Store, *, op: str | None = None, device: str | None = None, winners_only: bool
) -> Iterator[Line]:
    """A store's records in the order of their ids, then its winners."""
    devices = Identities(store)
    if not winners_only:
        for record in store.measurements(None, device, stage=None):
            if op in {None, record.problem.op}:
                yield line_of(record, devices[record.device])
    for winner in store.winners(op=op, device=device):
        yield as_winner(line_of(winner.record, devices[winner.record.device]))


def export_file(
    store: Store, path: Path, *, op: str | None = None, device: str | None = None, winners_only: bool = False
) -> int:
    """Write `export_lines` to a file; returns the number of lines.

    Raises:
        AutotuneError: the file cannot be written.
    """
    return write_lines(path, export_lines(store, op=op, device=device, winners_only=winners_only))


def import_file(store: Store, path: Path) -> ImportReport:
    """Add a file's records to a store, as `import_lines` does; none of them if any line is not sound.

    Raises:
        UsageError: the file cannot be read, or a line is not sound; the message has its number.
    """
    return import_lines(store, list(read_lines(path)))


def import_lines(store: Store, lines: Iterable[Line]) -> ImportReport:
    """Add records to a store. A second time adds nothing.

    They are committed in pieces of `PIECE`, in order, so that running searches need not wait for all of a large file:
    each piece is added whole or not at all, and an import that was interrupted is finished by repeating it.
    """
    report, ours = ImportReport(), set[int]()
    for piece in _pieces(lines):
        added = store.transact(partial(_import, piece, ours))
        ours |= added.ids
        report.added += added.report.added
        report.known += added.report.known
        report.winners += added.report.winners
    return report


def _pieces(lines: Iterable[Line]) -> Iterator[list[Line]]:
    rest = iter(lines)
    while piece := list(islice(rest, PIECE)):
        yield piece


def _import(lines: Iterable[Line], ours: Collection[int], session: Session) -> "_Importer":
    importer = _Importer(session, ours)
    for line in lines:
        importer.add(line)
    return importer


def line_of(record: StoredMeasurement, identity: DeviceIdentity) -> Line:
    """A record of a store on the device that is called `record.device`, as a line."""
    return Line(record="measurement", identity=identity, **record.parts())


class Identities(dict[str, DeviceIdentity]):
    """A store's devices by name. Read once more where one is missing: another process may have added it since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        super().__init__(self._read())

    def __missing__(self, name: str) -> DeviceIdentity:
        found = self._read()
        self.update(found)
        return found[name]

    def _read(self) -> dict[str, DeviceIdentity]:
        rows = self._store.look(lambda session: session.scalars(select(Device)).all())
        return {row.name: to_identity(row) for row in rows}


class _Importer:
    """Adds lines within one transaction; keeps the rows that many lines share.

    `ours`: ids of the records that the file's earlier lines are. `ids`: those of the lines added here.
    """

    def __init__(self, session: Session, ours: Collection[int]) -> None:
        self._session = session
        self._devices = cache(partial(device_row, session))
        self._problems = cache(partial(problem_row, session))
        self._candidates = cache(partial(candidate_row, session))
        self._ours = ours
        self.ids: set[int] = set()
        self.report = ImportReport()

    def add(self, line: Line) -> None:
        row = self._row(line)
        standing = recording.recorded(self._session, row)
        if standing is None:
            self._session.add(row)
            self._session.flush()
            recording.contend(self._session, row)
            self.report.added += 1
        else:
            self.report.known += 1
        self.ids.add(standing or row.id)
        if line.is_winner and recording.name(self._session, standing or row.id, spills=self._spills(line, row)):
            self.report.winners += 1

    def _spills(self, line: Line, row: MeasurementRow) -> bool:
        """Whether a winner that spills may stand before this one.

        Not one that came with the same file, now or before: it was known where the file was written, and passed over.
        """
        if line.measurement.spills:
            return True
        standing = recording.standing_id(self._session, row)
        if standing is None or (standing not in self._ours and standing not in self.ids):
            return True
        return self._session.get_one(MeasurementRow, standing).search_id is not None

    def _row(self, line: Line) -> MeasurementRow:
        trial = recording.Trial(
            line.identity, line.problem, line.candidate, line.source_hash, line.measurement, None, line.stage
        )
        row = recording.make_row(
            trial,
            self._devices(line.identity),
            self._problems(line.problem),
            self._candidates(line.problem.op, line.candidate),
        )
        row.package_version, row.created_at = line.package_version, line.created_at
        return row
