"""Recorded tuning spaces: every configuration of a space with its time or its failure.

Two formats are read, plain or gzipped: Kernel Tuner's cache files (one JSON object with `tune_params` and `cache`),
and the JSON lines that `autotune db export` writes, of one problem, device and kernel family.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.errors import UsageError
from autotune.core.outcome import Outcome
from autotune.core.values import Config, Value, format_config

if TYPE_CHECKING:
    from autotune.store.json_lines import Line

# Kernel Tuner records a failure as a text in place of a time, by the name of the failure's class.
_FAILURES = {
    "InvalidConfig": Outcome.INFEASIBLE,
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "RuntimeFailedConfig": Outcome.LAUNCH_ERROR,
}


@dataclass(frozen=True)
class RecordedResult:
    """How one configuration fared: a median time in milliseconds, or a failure."""

    outcome: Outcome
    median_ms: float | None
    times_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class RecordedSpace:
    """Parameters with their values, and the result of each recorded configuration."""

    name: str  # kernel or op
    device: str
    parameters: Mapping[str, tuple[Value, ...]]
    results: Mapping[tuple[Value, ...], RecordedResult] = field(repr=False)

    @classmethod
    def load(cls, path: Path, template: str | None = None) -> "RecordedSpace":
        """Read a recording; `template` picks one kernel family of an export that has several.

        Raises:
            UsageError: the file is missing, is no recording, or holds several spaces.
        """
        try:
            text = _read(path)
            first, rest = _first_value(text)
            if "tune_params_keys" in first and not rest:
                return _from_kernel_tuner(first)
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the recording {path}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path} is no recording; give a Kernel Tuner cache file or what `autotune db export` wrote "
                f"({type(error).__name__}: {error})"
            ) from error
        return _from_lines(path, text, template)

    def lookup(self, config: Config) -> RecordedResult:
        """The result of a configuration; one that was not recorded is infeasible (it broke a restriction).

        Raises:
            UsageError: the configuration lacks a parameter of the space.
        """
        missing = [name for name in self.parameters if name not in config]
        if missing:
            raise UsageError(f"configuration {format_config(config)} lacks {', '.join(missing)}")
        key = tuple(config[name] for name in self.parameters)
        return self.results.get(key, RecordedResult(Outcome.INFEASIBLE, None))

    @property
    def configs(self) -> Iterable[dict[str, Value]]:
        """Every recorded configuration, in the file's order."""
        return (dict(zip(self.parameters, key, strict=True)) for key in self.results)

    @property
    def best_ms(self) -> float:
        """The shortest recorded time.

        Raises:
            UsageError: no configuration succeeded.
        """
        times = [result.median_ms for result in self.results.values() if result.median_ms is not None]
        if not times:
            raise UsageError(f"the recording {self.name} holds no configuration that succeeded")
        return min(times)


def _read(path: Path) -> str:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return data.decode()


def _first_value(text: str) -> tuple[dict[str, Any], str]:
    stripped = text.lstrip()
    value, end = json.JSONDecoder().raw_decode(stripped)
    return value, stripped[end:].strip()


def _from_kernel_tuner(data: Mapping[str, Any]) -> RecordedSpace:
    names = [str(name) for name in data["tune_params_keys"]]
    results = {tuple(entry[name] for name in names): _kernel_tuner_result(entry) for entry in data["cache"].values()}
    return RecordedSpace(
        name=str(data["kernel_name"]),
        device=str(data["device_name"]),
        parameters={name: tuple(data["tune_params"][name]) for name in names},
        results=results,
    )


def _kernel_tuner_result(entry: Mapping[str, Any]) -> RecordedResult:
    time = entry["time"]
    if isinstance(time, bool) or not isinstance(time, int | float):
        return RecordedResult(_FAILURES.get(str(time), Outcome.LAUNCH_ERROR), None)
    if not 0.0 < time < float("inf"):
        return RecordedResult(Outcome.LAUNCH_ERROR, None)  # NaN too: it is not greater than 0
    return RecordedResult(Outcome.OK, float(time), tuple(float(value) for value in entry.get("times", ())))


def _from_lines(path: Path, text: str, template: str | None) -> RecordedSpace:
    lines = [line for line in _lines(path, text) if template in (None, line.candidate.template)]
    if not lines:
        raise UsageError(f"{path} holds no measurement" + (f" of template {template!r}" if template else ""))
    for what, found in {
        "problems": sorted({line.problem.key for line in lines}),
        "devices": sorted({line.identity.name for line in lines}),
        "templates": sorted({line.candidate.template for line in lines}),
    }.items():
        if len(found) > 1:
            raise UsageError(f"{path} holds several {what}, a recording has one: {'; '.join(found[:5])}")
    names = list(lines[0].candidate.config)
    results: dict[tuple[Value, ...], RecordedResult] = {}
    for line in lines:
        key = tuple(line.candidate.config[name] for name in names)
        if line.stage == "trial" or key not in results:  # a finalist's second time is not what a search would see
            results[key] = _line_result(line)
    parameters = {name: tuple(dict.fromkeys(key[i] for key in results)) for i, name in enumerate(names)}
    return RecordedSpace(lines[0].candidate.template, lines[0].identity.spec.title, parameters, results)


def _lines(path: Path, text: str) -> Iterator["Line"]:
    from autotune.store.json_lines import LineError, parse_line

    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield parse_line(line)
        except LineError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error


def _line_result(line: "Line") -> RecordedResult:
    measurement = line.measurement
    return RecordedResult(measurement.outcome, measurement.ms if measurement.outcome is Outcome.OK else None)
