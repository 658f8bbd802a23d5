"""Records as JSON lines: what `autotune db export` writes, `import` reads, and the shipped winners are.

    {"record": "measurement", "device": {"kind": …, "spec": {…}}, "problem": {"op": …, …}, "candidate":
    {"template": …, "template_hash": …, "config": {…}}, "source_hash": …, "stage": …, "package_version": …,
    "created_at": …, "measurement": {…}}

Measurements of older versions lack `machine_code` and `measured_as`, and are sound without; `attempts` stands in those
of a second try alone, `energy` where it was measured. A device that was held to limits has them as its `cap`.
A winner is the same line with `"record": "winner"`: it carries its measurement and needs no other line.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import AutotuneError
from autotune.core.measurement import Energy, Measurement, Timing
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem, split_json
from autotune.gpus.cap import NO_CAP, parse_cap
from autotune.gpus.identity import DEVICES, DeviceIdentity
from autotune.gpus.spec import DeviceSpec
from autotune.store.plain import dumps, loads
from autotune.store.records import Record, StoredMeasurement

RecordType = Literal["measurement", "winner"]

_KEYS = (
    "record", "device", "problem", "candidate", "source_hash", "stage", "package_version", "created_at", "measurement",
)  # fmt: skip
_HASH = re.compile(r"[0-9a-f]{8,64}\Z")


@dataclass(frozen=True, kw_only=True)
class Line(Record):
    """A record with its device in full, free of any database's ids."""

    record: RecordType
    identity: DeviceIdentity

    def text(self) -> str:
        """The line, without its end."""
        values = (
            self.record,
            {
                "kind": self.identity.kind,
                "spec": self.identity.spec.to_json(),
                **({"cap": str(self.identity.cap)} if self.identity.cap else {}),
            },
            self.problem.to_json(),
            {
                "template": self.candidate.template,
                "template_hash": self.candidate.template_hash,
                "config": self.candidate.config,
            },
            self.source_hash,
            self.stage,
            self.package_version,
            self.created_at.isoformat(),
            self.measurement.to_json(),
        )
        return dumps(dict(zip(_KEYS, values, strict=True)))

    def stored(self) -> StoredMeasurement:
        """The record as a store hands it out, with 0 for the id that it has in none."""
        return StoredMeasurement(id=0, device=self.identity.name, search_id=None, **self.parts())

    @property
    def is_winner(self) -> bool:
        """Whether it says that this measurement is a winner."""
        return self.record == "winner"


class LineError(AutotuneError):
    """A line that is not a sound record; the caller adds file and line number."""


def parse_line(text: str) -> Line:
    """Read and verify a line.

    Raises:
        LineError: not JSON, a missing, unknown or mistyped field, an unknown outcome, a time that is not positive
            and finite, an ok measurement that failed its verification, a winner that is not ok.
    """
    try:
        data = loads(text)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise LineError("not a JSON object")
    _exact_keys("the record", data, _KEYS)
    try:
        line = Line(
            record=_choice(data, "record", ("measurement", "winner")),
            identity=_identity(data["device"]),
            problem=_problem(data["problem"]),
            candidate=_candidate(data["candidate"]),
            source_hash=_text(data, "source_hash"),
            stage=_choice(data, "stage", ("trial", "final")),
            package_version=_text(data, "package_version"),
            created_at=_moment(data["created_at"]),
            measurement=Measurement.from_json(data["measurement"]),
        )
        _verify(line)
    except LineError:
        raise
    except (AutotuneError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise LineError(f"not a sound record: {error}") from error
    return line


def _verify(line: Line) -> None:
    measurement = line.measurement
    if measurement.timing is not None:
        _verify_timing(measurement.timing, line.identity)
    for name in ("build_seconds", "device_seconds"):
        _number(name, getattr(measurement, name), zero=True)
    if not all(isinstance(value, str) for value in (measurement.message, *measurement.environment.values())):
        raise LineError("the message or the environment holds something else than texts")
    _verify_details(measurement)
    if type(measurement.attempts) is not int or measurement.attempts not in {1, 2}:
        raise LineError(f"attempts={measurement.attempts!r} is neither 1 nor 2")
    first = measurement.measured_as
    for name, value in [
        ("machine_code", measurement.machine_code),
        *([] if first is None else [("measured_as", first.template_hash), ("measured_as", first.source_hash)]),
    ]:
        if value is not None and not (isinstance(value, str) and _HASH.match(value)):
            raise LineError(f"{name} {value!r} is not a hash")
    if measurement.outcome is Outcome.OK:
        _verify_ok(line)
    elif line.is_winner:
        raise LineError(f"a winner's measurement must be ok, this one is {measurement.outcome}")
    elif line.source_hash and not _HASH.match(line.source_hash):
        raise LineError(f"source_hash {line.source_hash!r} is not a hash")


def _verify_details(measurement: Measurement) -> None:
    """What is shown of a record, and never compared: of the right types all the same."""
    for kernel in measurement.resources:
        for name, value in asdict(kernel).items():
            _text({name: value}, name) if name == "kernel" else _number(f"the kernel's {name}", value, zero=True)
    timing, verification = measurement.timing, measurement.verification
    _verify_energy(measurement.energy)
    if timing is not None:
        _text({"method": timing.method}, "method")
        for name in ("repeats", "clock_mhz", "power_w", "temperature_c"):
            if getattr(timing, name) is not None:
                _number(name, getattr(timing, name), zero=True)
    if verification is not None:
        _text({"problem": verification.problem}, "problem")
        counts = [verification.units_checked, verification.units_total]
        for check in verification.checks:
            _text({"name": check.name}, "name")
            counts += [check.not_finite, *(check.at or ())]
            if not all(isinstance(value, int | float) for value in (check.max_abs_error, check.bound)):
                raise LineError(f"the check of {check.name} holds something else than numbers")
        for count in counts:
            _number("a count of the verification", count, zero=True)


def _verify_energy(energy: Energy | None) -> None:
    for name, value in (asdict(energy) if energy is not None else {}).items():
        if name == "method":
            _text({name: value}, name)
        elif value is not None:
            _number(f"the energy's {name}", value, zero=name in {"idle_w", "clock_mhz", "temperature_c"})


def _verify_ok(line: Line) -> None:
    if line.measurement.timing is None:
        raise LineError("the outcome is ok, but there is no time")
    verification = line.measurement.verification
    if verification is not None and not verification.passed:
        raise LineError("the outcome is ok, but its verification did not pass")
    if not _HASH.match(line.source_hash):
        raise LineError(f"source_hash {line.source_hash!r} is not a hash")


def _verify_timing(timing: Timing, identity: DeviceIdentity) -> None:
    if timing.kind not in DEVICES[identity.kind].times:
        raise LineError(f"a time on {identity.name} cannot be {timing.kind!r}")
    for name in ("median_ms", "q1_ms", "q3_ms", "min_ms"):
        _number(name, getattr(timing, name))
    if not timing.min_ms <= timing.q1_ms <= timing.median_ms <= timing.q3_ms:
        raise LineError("the times are not in order: min, first quartile, median, third quartile")


def _number(name: str, value: Any, *, zero: bool = False) -> None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not sound or value < 0 or (value == 0 and not zero):
        raise LineError(f"{name}={value!r} is not a positive, finite number")


def _identity(data: Mapping[str, Any]) -> DeviceIdentity:
    _exact_keys("the device", {name: data[name] for name in data if name != "cap"}, ("kind", "spec"))
    cap = parse_cap(_text(data, "cap")) if "cap" in data else NO_CAP
    if cap is None:
        raise LineError(f"the device's cap {data['cap']!r} is none")
    spec = DeviceSpec(**data["spec"])
    for name, value in data["spec"].items():
        if name in {"name", "title", "arch"}:
            _text(data["spec"], name)
        else:
            _number(f"the device's {name}", value, zero=True)
    if spec.compute_capability < 10 or not spec.name:
        raise LineError(f"the device's arch {spec.arch!r} is not one")
    return DeviceIdentity(_choice(data, "kind", tuple(DEVICES)), spec, cap)


def _problem(data: Mapping[str, Any]) -> Problem:
    """The problem; of an op that is registered, in the op's own order and checked by it."""
    from autotune.ops.registry import get_op, op_names

    op, fields = split_json(data)
    _scalars("the problem", fields)
    if op not in op_names():
        return Problem(op, tuple(fields.items()))
    known = get_op(op)
    missing = [field.name for field in known.fields if field.name not in fields]
    if missing:
        raise LineError(f"the problem lacks {', '.join(missing)}")
    return known.problem(**fields)


def _candidate(data: Mapping[str, Any]) -> Candidate:
    _exact_keys("the candidate", data, ("template", "template_hash", "config"))
    if not _HASH.match(_text(data, "template_hash")):
        raise LineError(f"template_hash {data['template_hash']!r} is not a hash")
    if not _text(data, "template"):
        raise LineError("the candidate's template has no name")
    _scalars("the configuration", data["config"])
    return make_candidate(data["template"], data["template_hash"], data["config"])


def _scalars(what: str, data: Mapping[str, Any]) -> None:
    for name, value in data.items():
        if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
            raise LineError(f"{name}={value!r} in {what} is not a value")


def _exact_keys(what: str, data: Any, keys: tuple[str, ...]) -> None:
    if not isinstance(data, dict):
        raise LineError(f"{what} is not an object")
    if data.keys() != set(keys):
        missing, unknown = set(keys) - data.keys(), data.keys() - set(keys)
        words = [f"lacks {', '.join(sorted(missing))}"] * bool(missing)
        words += [f"has unknown {', '.join(sorted(unknown))}"] * bool(unknown)
        raise LineError(f"{what} {' and '.join(words)}")


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data[name]
    if not isinstance(value, str):
        raise LineError(f"{name}={value!r} is not a text")
    return value


def _choice(data: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> Any:
    if data[name] not in choices:
        raise LineError(f"{name}={data[name]!r} is not one of {', '.join(choices)}")
    return data[name]


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise LineError(f"created_at={value!r} lacks its time zone")
    return moment


def as_winner(line: Line) -> Line:
    """The same record, saying that it is a winner."""
    return replace(line, record="winner")
