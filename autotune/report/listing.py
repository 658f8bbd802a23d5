"""Lists of records for people: what all of them have in common is said once, above the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core.measurement import Energy
from autotune.core.problem import Problem
from autotune.core.values import Value, format_config
from autotune.core.words import format_ms
from autotune.store.records import StoredMeasurement


def energy_words(energy: Energy) -> str:
    """An energy as records are shown."""
    idle = "" if energy.idle_w is None else f", {energy.idle_w:.0f} W idle"
    return (
        f"{energy.mj:.4g} mJ a call, {energy.power_w:.0f} W{idle} ({energy.method}, {energy.calls} calls in "
        f"{energy.seconds:.2g} s)"
    )


@dataclass(frozen=True)
class Listing:
    """Names and values that hold for all rows, then columns (marked as `autotune.report.table` has it) and rows."""

    shared: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def differing(configs: Sequence[Mapping[str, Value]]) -> list[str]:
    """The names that not all of the configurations have with the same value, in the first one's order."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({repr(config.get(name)) for config in configs}) > 1]


def listing(records: Sequence[StoredMeasurement]) -> Listing:
    """Records as a table. Where there is one record, or they differ in everything, nothing is shared."""
    parts = [_devices(records), _problems(records), _candidates(records)]
    shared = tuple(pair for part in parts for pair in part[0]) if len(records) > 1 else ()
    columns: dict[str, Sequence[object]] = {">id": [record.id or record.source_hash for record in records]}
    if len({record.id > 0 for record in records}) > 1:
        columns["origin"] = ["own" if record.id else "shipped" for record in records]
    for _, changing, every in parts:
        columns.update(changing if shared else every)
    columns |= _figures(records)
    texts = [name for name in columns if name.startswith("~")]  # last, so that they fold below where it is narrow
    columns |= {name: columns.pop(name) for name in texts}
    return Listing(shared, tuple(columns), tuple(zip(*columns.values(), strict=True)))


_Columns = dict[str, Sequence[object]]
_Part = tuple[list[tuple[str, str]], _Columns, _Columns]
"""What is shared; the columns without it; the columns with everything."""


def _devices(records: Sequence[StoredMeasurement]) -> _Part:
    names = [record.device for record in records]
    every: _Columns = {"device": names}
    return ([("device", names[0])], {}, every) if len(set(names)) == 1 else ([], every, every)


def _problems(records: Sequence[StoredMeasurement]) -> _Part:
    problems = [record.problem for record in records]
    every: _Columns = {"~problem": [problem.key for problem in problems]}
    if len({problem.op for problem in problems}) != 1:
        return [], every, every
    names = differing([problem.fields for problem in problems])
    same = [name for name in problems[0].fields if name not in names]
    changing: _Columns = {"~problem": [_part(p, names).partition(" ")[2] for p in problems]} if names else {}
    return [("problem", _part(problems[0], same))], changing, every


def _part(problem: Problem, names: Sequence[str]) -> str:
    return Problem(problem.op, tuple((name, value) for name, value in problem.values if name in names)).key


def _candidates(records: Sequence[StoredMeasurement]) -> _Part:
    configs = [record.candidate.config for record in records]
    templates = [record.candidate.template for record in records]
    every: _Columns = {"template": templates, "~configuration": [format_config(config) for config in configs]}
    if len(set(templates)) != 1:
        return [], every, every
    names = differing(configs)
    same = {name: value for name, value in configs[0].items() if name not in names}
    rest = [format_config({name: config[name] for name in names if name in config}) for config in configs]
    shared = [("template", f"{templates[0]} {format_config(same)}".strip())]
    return shared, {"~configuration": rest} if names else {}, every


def _figures(records: Sequence[StoredMeasurement]) -> _Columns:
    timings = [record.measurement.timing for record in records]
    messages = [record.measurement.message for record in records]
    energies = [record.measurement.energy for record in records]
    metered: dict[str, list[Any]] = {
        ">mJ": ["" if energy is None else f"{energy.mj:.4g}" for energy in energies],
        ">W": ["" if energy is None else f"{energy.power_w:.0f}" for energy in energies],
    }
    figures: dict[str, list[Any]] = {
        "?stage": [record.stage for record in records],
        "outcome": [record.measurement.outcome.value for record in records],
        ">ms": ["" if timing is None else format_ms(timing.median_ms) for timing in timings],
        **(metered if any(energies) else {}),
        "kind": ["" if timing is None else timing.label for timing in timings],
    }
    return {**figures, **({"~message": messages} if any(messages) else {})}
