"""Winners as look-ups see them: the user's own from a database, and those that come with the package."""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.measurement import Measurement, TimingKind
from autotune.core.model_version import DRIVER
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.cap import Cap
from autotune.gpus.identity import DeviceName, gpu_of_record, parse_device
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import stored_problem
from autotune.store.json_lines import Line
from autotune.store.plain import loads
from autotune.store.reader import Reader, Row
from autotune.store.shipped import shipped_winners
from autotune.store.soundness import is_time, readable, unsound, unsound_winner

Origin = Literal["own", "shipped"]

_COLUMNS = """
    d.name, m.kind, m.ms, p.op, p.fields, c.template, c.template_hash, c.config, m.source_hash, m.driver, m.compiler,
    m.energy_mj, m.id, m.outcome"""

_WINNERS = f"""
    SELECT {_COLUMNS}, w.measurement_id, w.kind = m.kind AND m.problem_id = p.id AND m.device_id = d.id FROM problem p
    JOIN winner w ON w.problem_id = p.id
    JOIN device d ON d.id = w.device_id AND d.kind <> 'replay' AND d.compute_capability = :capability
    LEFT JOIN measurement m ON m.id = w.measurement_id
    LEFT JOIN candidate c ON c.id = m.candidate_id
    WHERE """

_NEIGHBOURS = """
    SELECT d.name, w.kind, w.measurement_id, p.fields FROM problem p
    JOIN winner w ON w.problem_id = p.id
    JOIN device d ON d.id = w.device_id AND d.kind <> 'replay' AND d.compute_capability = :capability
    WHERE p.op = :op"""

_BY_ID = f"""
    SELECT {_COLUMNS} FROM measurement m
    JOIN problem p ON p.id = m.problem_id
    JOIN device d ON d.id = m.device_id
    JOIN candidate c ON c.id = m.candidate_id
    WHERE m.id = :id"""

_EVERY = f"""
    SELECT {_COLUMNS}, m.stage, m.detail FROM problem p
    JOIN measurement m ON m.problem_id = p.id AND m.outcome = 'ok'
    JOIN device d ON d.id = m.device_id
    JOIN candidate c ON c.id = m.candidate_id
    WHERE p.key = :key AND """

_CURRENT = f"""
    SELECT {_COLUMNS} FROM problem p
    JOIN device d ON d.name = :device
    JOIN measurement m ON m.problem_id = p.id AND m.device_id = d.id AND m.kind = :kind AND m.outcome = 'ok'
    JOIN candidate c ON c.id = m.candidate_id
    WHERE p.key = :key AND NOT EXISTS (
        SELECT 1 FROM measurement f
        WHERE f.problem_id = m.problem_id AND f.device_id = m.device_id AND f.candidate_id = m.candidate_id
        AND f.kind = m.kind AND f.outcome = 'ok' AND f.stage = 'final' AND (m.stage <> 'final' OR f.id > m.id)
    ) AND """

_FAILURES = """
    SELECT d.name, c.template, c.template_hash, c.config, m.outcome, m.id FROM problem p
    JOIN measurement m ON m.problem_id = p.id
        AND m.outcome IN ('wrong_result', 'compile_error', 'launch_error', 'crash', 'timeout')
    JOIN device d ON d.id = m.device_id AND d.compute_capability = :capability
        AND (d.kind = 'cuda' OR d.kind = 'cpu' AND m.outcome = 'wrong_result')
    JOIN candidate c ON c.id = m.candidate_id
    WHERE p.key = :key AND NOT EXISTS (
        SELECT 1 FROM measurement f
        WHERE f.problem_id = m.problem_id AND f.device_id = m.device_id AND f.candidate_id = m.candidate_id
        AND f.outcome IN ('ok', 'pruned') AND f.id > m.id
    ) ORDER BY m.id"""


@dataclass(frozen=True)
class Failure:
    """How a candidate came out for a problem, other than right. `device` is `DeviceIdentity.name`."""

    device: str
    candidate: Candidate
    outcome: str
    measurement_id: int


@dataclass(frozen=True)
class Entry:
    """A measurement that a look-up may answer with. `device` is `DeviceIdentity.name`, `gpu` the model's name."""

    origin: Origin
    device: str
    kind: TimingKind
    ms: float
    problem: Problem
    candidate: Candidate
    source_hash: str
    driver: str
    compiler: str
    measurement_id: int | None  # in the user's database; None for a shipped one
    energy_mj: float | None = None  # of a call
    error: float | None = None  # the part of its bound (`Verification.part_of_bound`), where it was looked at
    final: bool = False

    @property
    def cap(self) -> Cap:
        """To what the GPU was held."""
        return parse_device(self.device).cap

    @property
    def gpu(self) -> str:
        """The GPU model that its time is of, measured or estimated: `h200` for `h200` and for `cpu:h200`."""
        return gpu_of_record(self.device)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A winner of a related problem, reduced to what ranks it: thousands are looked at for one that is read."""

    gpu: str
    kind: str
    place: tuple[float, ...]  # see `place`
    measurement_id: int | None
    shipped: Entry | None


def place(problem: Problem, exact: Sequence[str]) -> tuple[float, ...]:
    """Where a problem is among those that agree with it in the fields `exact`: log2 of its lengths and counts."""
    return _place(problem.fields, [name for name, value in problem.values if _counts(name, value, exact)])


class Winners:
    """All winners that a look-up knows, the user's own before the shipped ones.

    A problem may have several shipped winners, of families with different arithmetic: the fastest of those asked
    about stands for it.
    Neighbours are kept until something is committed: asking for many shapes reads them once.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._neighbours: dict[tuple[object, ...], tuple[object, list[Neighbour]]] = {}

    def of_problem(self, problem: Problem, capability: int, families: Collection[str]) -> list[Entry]:
        """Those of exactly this problem, on any GPU of this compute capability; shipped ones of `families` alone."""
        rows = self._reader.rows(_WINNERS + "p.key = :key", {"key": problem.key, "capability": capability})
        return [*map(_winner, rows), *_fastest(_shipped(capability).get(problem.key, ()), families)]

    def neighbours(
        self, problem: Problem, exact: Sequence[str], capability: int, families: Collection[str]
    ) -> list[Neighbour]:
        """Those of any problem of the same op that agrees in the fields `exact`, on any GPU of this capability.

        Shipped ones of `families` alone.
        """
        stamp = self._reader.stamp()
        key = (problem.op, capability, tuple(families), *(problem[name] for name in exact))
        known = self._neighbours.get(key)
        if known is None or known[0] != stamp:
            found = [*self._own(problem, exact, capability), *_theirs(problem, exact, capability, families)]
            known = self._neighbours[key] = stamp, found
        return known[1]

    def _own(self, problem: Problem, exact: Sequence[str], capability: int) -> Iterator[Neighbour]:
        # The key's words narrow the rows read; values that contain blanks are told apart by `_agrees`.
        words = [word for word in problem.key.split(" ") if word.partition("=")[0] in exact]
        values: dict[str, Any] = {f"word{i}": f"% {_escaped(word)} %" for i, word in enumerate(words)}
        clauses = [f" AND (' ' || p.key || ' ') LIKE :{name} ESCAPE '!'" for name in values]
        rows = self._reader.rows(_NEIGHBOURS + "".join(clauses), {"op": problem.op, "capability": capability, **values})
        mine = dict(problem.values)
        lengths = [name for name, value in mine.items() if _counts(name, value, exact)]
        for device, kind, number, text in rows:
            if parse_device(device).cap:
                continue
            with readable(number):
                fields = json.loads(text)
            if _agrees(fields, mine, exact):
                yield Neighbour(gpu_of_record(device), kind, _place(fields, lengths), number, None)

    def entry(self, neighbour: Neighbour) -> Entry | None:
        """All of a neighbour; None if it has gone meanwhile."""
        if neighbour.shipped is not None:
            return neighbour.shipped
        rows = self._reader.rows(_BY_ID, {"id": neighbour.measurement_id})
        return _entry(rows[0]) if rows else None

    def every(self, problem: Problem, devices: Sequence[str], *, metered: bool) -> list[Entry]:
        """All right records of a problem on these devices, with their errors; of a finalist the newest final alone.

        `metered`: only those that tell their energy.
        """
        values: dict[str, Any] = {"key": problem.key} | {f"device{i}": name for i, name in enumerate(devices)}
        which = f"d.name IN ({', '.join(f':device{i}' for i in range(len(devices)))})"
        known = " AND m.energy_mj IS NOT NULL" if metered else ""
        newest: dict[tuple[str, Candidate], Entry] = {}
        for *columns, stage, detail in self._reader.rows(f"{_EVERY}{which}{known} ORDER BY m.id", values):
            entry = _entry(columns)
            with readable(entry.measurement_id):
                checked = Measurement.from_json(loads(detail)).verification
            error = None if checked is None else checked.part_of_bound
            before = newest.get((entry.device, entry.candidate))
            if before is None or stage == "final" or not before.final:
                newest[entry.device, entry.candidate] = replace(entry, error=error, final=stage == "final")
        return list(newest.values())

    def failures(self, problem: Problem, capability: int) -> Iterator[Failure]:
        """What failed for exactly this problem on any GPU of this compute capability, and was not right there later.

        On the emulator wrong results alone: what it is too slow for says nothing of a GPU.
        """
        for device, template, version, config, outcome, number in self._reader.rows(
            _FAILURES, {"key": problem.key, "capability": capability}
        ):
            with readable(number):
                candidate = make_candidate(template, version, loads(config))
            yield Failure(device, candidate, outcome, number)

    def shipped(self, problem: Problem, capability: int, families: Collection[str]) -> list[Entry]:
        """Those of this problem that come with the package, by these families."""
        return [e for e in _shipped(capability).get(problem.key, ()) if e.candidate.template in families]

    def still_current(self, entry: Entry, versions: Mapping[str, str]) -> Entry | None:
        """The fastest measurement like this entry's (problem, device, kind) by these templates (name to hash).

        A finalist counts by its newest final. Estimates of the present model come before older ones.
        """
        if entry.origin != "own" or not versions:
            return None
        values = {"device": entry.device, "kind": entry.kind, "key": entry.problem.key}
        clauses = []
        for i, (name, version) in enumerate(versions.items()):
            clauses.append(f"(c.template = :name{i} AND c.template_hash = :hash{i})")
            values |= {f"name{i}": name, f"hash{i}": version}
        values["model"] = DRIVER
        old_last = "CASE WHEN m.kind = 'estimated' AND m.driver <> :model THEN 1 ELSE 0 END"
        rows = self._reader.rows(f"{_CURRENT} ({' OR '.join(clauses)}) ORDER BY {old_last}, m.ms LIMIT 1", values)
        return _entry(rows[0]) if rows else None

    def device_spec(self, gpu: str) -> DeviceSpec | None:
        """The limits of a GPU that is in the database, under whatever name it has there."""
        sql = "SELECT spec FROM device WHERE name = :gpu OR name = :estimated ORDER BY name DESC"
        rows = self._reader.rows(sql, {"gpu": gpu, "estimated": str(DeviceName("cpu", gpu))})
        return DeviceSpec(**loads(rows[0][0])) if rows else None


def _winner(row: Row) -> Entry:
    *columns, pointed_to, agrees = row
    if columns[-2] is None:
        raise unsound_winner(pointed_to, "which is not there")
    entry = _entry(columns)
    if not agrees:
        raise unsound_winner(pointed_to, "which is of another problem, device or kind of time")
    return entry


def _entry(row: Row) -> Entry:
    device, kind, ms, op, fields, template, template_hash, config, source_hash, driver, compiler, *rest = row
    energy_mj, number, outcome = rest
    if outcome != Outcome.OK:
        raise unsound_winner(number, f"whose outcome is {outcome}")
    if not is_time(ms):
        raise unsound(number, f"ms={ms!r} is no time that a kernel can take")
    with readable(number):
        problem = stored_problem(op, loads(fields))
        candidate = make_candidate(template, template_hash, loads(config))
    return Entry("own", device, kind, ms, problem, candidate, source_hash, driver, compiler, number, energy_mj)


@cache
def _shipped(capability: int) -> Mapping[str, tuple[Entry, ...]]:
    """Shipped winners on GPUs of this compute capability, by problem."""
    found: dict[str, tuple[Entry, ...]] = {}
    for line in shipped_winners():
        if line.identity.spec.compute_capability == capability:
            found[line.problem.key] = (*found.get(line.problem.key, ()), _shipped_entry(line))
    return found


def _theirs(problem: Problem, exact: Sequence[str], capability: int, families: Collection[str]) -> Iterator[Neighbour]:
    """Shipped neighbours."""
    mine = dict(problem.values)
    lengths = [name for name, value in mine.items() if _counts(name, value, exact)]
    for entries in _shipped(capability).values():
        for entry in _fastest(entries, families):
            fields = dict(entry.problem.values)
            if entry.problem.op == problem.op and _agrees(fields, mine, exact):
                yield Neighbour(entry.gpu, entry.kind, _place(fields, lengths), None, entry)


def _fastest(entries: Iterable[Entry], families: Collection[str]) -> Iterable[Entry]:
    """Of one problem's entries by these families the fastest on each device."""
    found: dict[str, Entry] = {}
    for entry in entries:
        best = found.get(entry.device)
        if entry.candidate.template in families and (best is None or entry.ms < best.ms):
            found[entry.device] = entry
    return found.values()


def _shipped_entry(line: Line) -> Entry:
    timing, environment = line.measurement.timing, line.measurement.environment
    checked = line.measurement.verification
    assert timing is not None  # verified when the line was read
    return Entry(
        "shipped", line.identity.name, timing.kind, timing.median_ms, line.problem, line.candidate, line.source_hash,
        environment.get("driver", ""), environment.get("compiler", ""), None, line.measurement.mj,
        None if checked is None else checked.part_of_bound, line.stage == "final",
    )  # fmt: skip


def _counts(name: str, value: object, exact: Sequence[str]) -> bool:
    return name not in exact and isinstance(value, int) and not isinstance(value, bool)


def _place(fields: Mapping[str, Any], lengths: Sequence[str]) -> tuple[float, ...]:
    return tuple([math.log2(max(fields[name], 1)) for name in lengths])


def _agrees(found: Mapping[str, Any], asked: Mapping[str, Any], exact: Sequence[str]) -> bool:
    """Of what two problems say: a field that neither says is implied by one that both say."""
    return found.keys() == asked.keys() and all(found[name] == asked[name] for name in exact if name in asked)


def _escaped(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
