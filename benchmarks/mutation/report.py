"""The table of a run: by kind of mistake how many were noticed, and by what; then every one that was not."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ENOUGH = 0.98
STAGES = ("verification", "examination", "checker", "tests")
NONE = ("compiler", "equivalent", "broken")
"""Records that are of no mistake: it does not compile, it changes nothing, or it could not be judged."""

EXPLANATIONS = Path(__file__).parents[1] / "data" / "mutants_explained.json"
"""Of survivors, by place: what they are."""

Records = Mapping[str, Mapping[str, Any]]
_HEADING = (
    "| kind | mistakes | verification | examination | checker | tests | survive | noticed | no mistakes |",
    "|---|" + "---|" * 8,
)


@dataclass(frozen=True)
class Row:
    """Of one kind."""

    kind: str
    by_stage: Mapping[str, int]

    @property
    def counted(self) -> int:
        return sum(self.by_stage.get(stage, 0) for stage in (*STAGES, ""))

    @property
    def noticed(self) -> int:
        return self.counted - self.by_stage.get("", 0)

    def __str__(self) -> str:
        numbers = [self.counted, *(self.by_stage.get(stage, 0) for stage in (*STAGES, ""))]
        share = f"{100 * self.noticed / self.counted:.1f} %" if self.counted else ""
        none = sum(self.by_stage.get(stage, 0) for stage in NONE)
        return f"| {self.kind} | {' | '.join(map(str, numbers))} | {share} | {none} |"


@dataclass(frozen=True)
class Report:
    """All kinds, their sum, and what survived with what is known of it."""

    rows: tuple[Row, ...]
    total: Row
    survivors: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        rows = {
            row.kind: {"counted": row.counted, "noticed": row.noticed, **row.by_stage}
            for row in (*self.rows, self.total)
        }
        return {"kinds": rows, "survivors": [dict(survivor) for survivor in self.survivors]}

    def __str__(self) -> str:
        lines = [*_HEADING, *map(str, self.rows), str(self.total), ""]
        lines += [
            f"- {one['name']} {one['family']} ({one['kind']}: {one['rule']}) `{one['change']}`: {one['explained']}"
            for one in self.survivors
        ]
        return "\n".join(lines)


def report(done: Records) -> Report:
    """Of all records."""
    stages: dict[str, Counter[str]] = defaultdict(Counter)
    for record in done.values():
        stages[record["kind"]][_stage(record)] += 1
    rows = tuple(Row(kind, stages[kind]) for kind in sorted(stages))
    total = Row("in all", sum(stages.values(), Counter()))
    survivors = tuple(
        {**record, "explained": explanation_of(record).get("why", "not explained")}
        for record in done.values()
        if record["stage"] == ""
    )
    return Report(rows, total, survivors)


def share_of(done: Records) -> float:
    """Of the mistakes that are some, those that were noticed."""
    total = report(done).total
    return total.noticed / total.counted if total.counted else 1.0


def explanation_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is known of a survivor, empty if nothing is: `why`, and `same`: whether it computes the same, so that it is
    no mistake; `tests`: a file of the family's tests that was run with it and failed; `family` and `cases`: of which
    family and which of its configurations that holds, where not of all."""
    found = _explanations().get(record.get("place", ""), {})
    family, case = record["family"], record.get("case")
    return found if found.get("family", family) == family and case in found.get("cases", (case,)) else {}


@cache
def _explanations() -> Mapping[str, Mapping[str, Any]]:
    known: dict[str, dict[str, Any]] = json.loads(EXPLANATIONS.read_text(encoding="utf-8"))
    return known


def _stage(record: Mapping[str, Any]) -> str:
    stage: str = record["stage"]
    if stage == "":
        known = explanation_of(record)
        return "equivalent" if known.get("same") else "tests" if known.get("tests") else stage
    return stage
