"""Recorded tuning spaces: every configuration of a space with its time or its failure.

Read are, plain or gzipped, what other tuners write (`recording_formats`), and the JSON lines that `autotune db export`
writes, of one problem, device and kernel family.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.errors import UsageError
from autotune.core.outcome import Outcome
from autotune.core.values import Config, Value, format_config
from autotune.devices.recording_formats import Recorded, RecordedResult, parse, written

if TYPE_CHECKING:
    from autotune.store.json_lines import Line

__all__ = ["RecordedResult", "RecordedSpace"]


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
            found = None if _is_lines(text) else parse(text)
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the recording {path}: {error}") from error
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path} is no recording; give what Kernel Tuner, KTT or `autotune db export` wrote, or T4 results "
                f"({type(error).__name__}: {error})"
            ) from error
        if found is None:
            return _from_lines(path, text, template)
        return cls(found.name or path.name.split(".")[0], found.device, found.parameters, found.results)

    def text(self, form: str) -> str:
        """The recording as another tuner writes it: in one of `recording_formats.FORMATS`."""
        return written(Recorded(self.name, self.device, self.parameters, self.results), form)

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


def _is_lines(text: str) -> bool:
    """Whether the first line is an object by itself, with more behind it, or one that `autotune db export` wrote."""
    first, _, rest = text.strip().partition("\n")
    try:
        value = json.loads(first)
    except json.JSONDecodeError:
        return False
    return bool(rest) or (isinstance(value, dict) and "record" in value)


def _from_lines(path: Path, text: str, template: str | None) -> RecordedSpace:
    lines = [line for line in _lines(path, text) if template in (None, line.candidate.template)]
    if not lines:
        raise UsageError(f"{path} holds no measurement" + (f" of template {template!r}" if template else ""))
    return of_lines(lines, str(path))


def of_lines(lines: Sequence["Line"], where: str) -> RecordedSpace:
    """The recording that measurements of one problem, device and kernel family are.

    Raises:
        UsageError: there are several, or none; `where` tells the user in what.
    """
    if not lines:
        raise UsageError(f"{where} holds no measurement that is asked for")
    for what, found in {
        "problems": sorted({line.problem.key for line in lines}),
        "devices": sorted({line.identity.name for line in lines}),
        "templates": sorted({line.candidate.template for line in lines}),
        "sets of parameters": sorted({", ".join(line.candidate.config) for line in lines}),
    }.items():
        if len(found) > 1:
            many = f"{where} holds several {what}, a recording has one"
            if what == "templates":
                raise UsageError(f"{many}: choose one with --template NAME (there are {', '.join(found)})")
            raise UsageError(f"{many}: {'; '.join(found[:5])}")
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
    if measurement.outcome is not Outcome.OK:
        return RecordedResult(measurement.outcome, None)
    return RecordedResult(measurement.outcome, measurement.ms, energy_mj=measurement.mj)
