"""Winners as look-ups see them: the user's own from a database, and those that come with the package."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from autotune.candidate import Candidate, make_candidate
from autotune.devices.spec import DeviceSpec
from autotune.measurement import TimingKind
from autotune.problem import Problem
from autotune.store.lines import Line
from autotune.store.plain import loads
from autotune.store.reader import Reader, Row
from autotune.store.shipped import shipped_winners

Origin = Literal["own", "shipped"]

_COLUMNS = """
    d.name, m.kind, m.ms, p.op, p.fields, c.template, c.template_hash, c.config, m.source_hash, m.driver, m.compiler,
    m.id"""

_WINNERS = f"""
    SELECT {_COLUMNS} FROM problem p
    JOIN winner w ON w.problem_id = p.id
    JOIN device d ON d.id = w.device_id AND d.kind <> 'replay' AND d.compute_capability = :capability
    JOIN measurement m ON m.id = w.measurement_id
    JOIN candidate c ON c.id = m.candidate_id
    WHERE """

_CURRENT = f"""
    SELECT {_COLUMNS} FROM problem p
    JOIN device d ON d.name = :device
    JOIN measurement m ON m.problem_id = p.id AND m.device_id = d.id AND m.kind = :kind AND m.outcome = 'ok'
    JOIN candidate c ON c.id = m.candidate_id
    WHERE p.key = :key AND """


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

    @property
    def gpu(self) -> str:
        """The GPU model that its time is of, measured or estimated: `h200` for `h200` and for `cpu:h200`."""
        return self.device.rpartition(":")[2]


class Winners:
    """All winners that a look-up knows, the user's own before the shipped ones."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def of_problem(self, problem: Problem, capability: int) -> list[Entry]:
        """Those of exactly this problem, on any GPU of this compute capability."""
        rows = self._reader.rows(_WINNERS + "p.key = :key", {"key": problem.key, "capability": capability})
        return [*map(_entry, rows), *_shipped(capability).get(problem.key, ())]

    def of_family(self, problem: Problem, fields: Sequence[str], capability: int) -> list[Entry]:
        """Those of any problem of the same op that agrees in these fields."""
        # The key's words narrow the rows read; values that contain blanks are told apart below.
        words = [word for word in problem.key.split(" ") if word.partition("=")[0] in fields]
        values: dict[str, Any] = {f"word{i}": f"% {_escaped(word)} %" for i, word in enumerate(words)}
        clauses = [f"(' ' || p.key || ' ') LIKE :{name} ESCAPE '!'" for name in values]
        sql = _WINNERS + " AND ".join(["p.op = :op", *clauses])
        rows = self._reader.rows(sql, {"op": problem.op, "capability": capability, **values})
        shipped = (entry for entries in _shipped(capability).values() for entry in entries)
        return [entry for entry in (*map(_entry, rows), *shipped) if _agrees(entry.problem, problem, fields)]

    def still_current(self, entry: Entry, versions: Mapping[str, str]) -> Entry | None:
        """The fastest measurement like this entry's (problem, device, kind) by these templates (name to hash)."""
        if entry.origin != "own" or not versions:
            return None
        values = {"device": entry.device, "kind": entry.kind, "key": entry.problem.key}
        clauses = []
        for i, (name, version) in enumerate(versions.items()):
            clauses.append(f"(c.template = :name{i} AND c.template_hash = :hash{i})")
            values |= {f"name{i}": name, f"hash{i}": version}
        rows = self._reader.rows(f"{_CURRENT} ({' OR '.join(clauses)}) ORDER BY m.ms LIMIT 1", values)
        return _entry(rows[0]) if rows else None

    def device_spec(self, gpu: str) -> DeviceSpec | None:
        """The limits of a GPU that is in the database, under whatever name it has there."""
        sql = "SELECT spec FROM device WHERE name = :gpu OR name = :estimated ORDER BY name DESC"
        rows = self._reader.rows(sql, {"gpu": gpu, "estimated": f"cpu:{gpu}"})
        return DeviceSpec(**loads(rows[0][0])) if rows else None


def _entry(row: Row) -> Entry:
    device, kind, ms, op, fields, template, template_hash, config, source_hash, driver, compiler, number = row
    problem = Problem(op, tuple(loads(fields).items()))
    candidate = make_candidate(template, template_hash, loads(config))
    return Entry("own", device, kind, ms, problem, candidate, source_hash, driver, compiler, number)


@cache
def _shipped(capability: int) -> Mapping[str, tuple[Entry, ...]]:
    """Shipped winners on GPUs of this compute capability, by problem."""
    found: dict[str, tuple[Entry, ...]] = {}
    for line in shipped_winners():
        if line.identity.spec.compute_capability == capability:
            found[line.problem.key] = (*found.get(line.problem.key, ()), _shipped_entry(line))
    return found


def _shipped_entry(line: Line) -> Entry:
    timing, environment = line.measurement.timing, line.measurement.environment
    assert timing is not None  # verified when the line was read
    return Entry(
        "shipped", line.identity.name, timing.kind, timing.median_ms, line.problem, line.candidate, line.source_hash,
        environment.get("driver", ""), environment.get("compiler", ""), None,
    )  # fmt: skip


def _agrees(found: Problem, asked: Problem, fields: Sequence[str]) -> bool:
    mine, theirs = asked.fields, found.fields
    return found.op == asked.op and mine.keys() == theirs.keys() and all(mine[name] == theirs[name] for name in fields)


def _escaped(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
