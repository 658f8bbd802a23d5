"""Recordings of other tuners: Kernel Tuner's cache files, T4 results (which several tuners write), KTT's output.

Read: Kernel Tuner's caches (`tune_params` and `cache`; of any version, with failures as texts in place of times or as
`__error__`, and such as were not closed because the tuner was killed), T4 (`results` with `configuration`, `times` and
`measurements`), KTT (`Metadata` and `Results`). Written: the first two.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.core.outcome import Outcome
from autotune.core.values import Value

# What Kernel Tuner writes in place of a time, by the name of the failure's class; and T4, as its `invalidity`.
_FAILURES = {
    "InvalidConfig": Outcome.INFEASIBLE,
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "RuntimeFailedConfig": Outcome.LAUNCH_ERROR,
    "constraints": Outcome.INFEASIBLE,
    "compile": Outcome.COMPILE_ERROR,
    "runtime": Outcome.LAUNCH_ERROR,
    "timeout": Outcome.TIMEOUT,
    "correctness": Outcome.WRONG_RESULT,
    "CompilationFailed": Outcome.COMPILE_ERROR,
    "ComputationFailed": Outcome.LAUNCH_ERROR,
    "ValidationFailed": Outcome.WRONG_RESULT,
    "DeviceLimitsExceeded": Outcome.INFEASIBLE,
}

_UNITS_MS = {
    "nanoseconds": 1e-6, "microseconds": 1e-3, "milliseconds": 1.0, "miliseconds": 1.0, "seconds": 1e3,
    "ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3,
}  # fmt: skip

_JOULES = ("nvml_energy", "ps_energy", "pmt_energy", "energy")
"""What Kernel Tuner's observers (NVML, PowerSensor, PMT) call the energy of a call."""

FORMATS = ("kernel-tuner", "t4")
"""The formats that `written` knows."""


@dataclass(frozen=True)
class RecordedResult:
    """How one configuration fared: a median time in milliseconds, and the energy of a call if known; or a failure."""

    outcome: Outcome
    median_ms: float | None
    times_ms: tuple[float, ...] = ()
    energy_mj: float | None = None


@dataclass(frozen=True)
class Recorded:
    """What a file says: name of the kernel (empty where it does not say), of the device, parameters and results."""

    name: str
    device: str
    parameters: Mapping[str, tuple[Value, ...]]
    results: Mapping[tuple[Value, ...], RecordedResult] = field(repr=False)


def parse(text: str) -> Recorded | None:
    """What a recording of another tuner holds; None for a text that is none.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it looks like one and is not.
    """
    data = _document(text)
    if "tune_params_keys" in data:
        return _kernel_tuner(data)
    if "results" in data:
        return _t4(data)
    return _ktt(data) if "Results" in data else None


def _document(text: str) -> dict[str, Any]:
    """The JSON object that a text is; of a Kernel Tuner cache that was not closed, all whole entries.

    Raises:
        ValueError: it is no JSON.
    """
    text = text.strip()
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        if not text.startswith("{") or '"tune_params_keys"' not in text or '"cache"' not in text:
            raise
        data = _closed(text)
    return data if isinstance(data, dict) else {}


def _closed(text: str) -> Any:
    """A cache that ends after an entry, or in the middle of one: an entry is a line."""
    before, _, _ = text.rpartition("\n")
    for whole in (text, before):
        try:
            return json.loads(whole.rstrip().rstrip(",") + "}}")
        except json.JSONDecodeError:
            continue
    return json.loads(text)


def _kernel_tuner(data: Mapping[str, Any]) -> Recorded:
    names = [str(name) for name in data["tune_params_keys"]]
    objective = str(data.get("objective", "time"))
    results = {}
    for entry in data["cache"].values():
        # Whatever was tuned for, such as GFLOP/s, the time stands beside it; a failure may stand in that one's place.
        found = entry.get("__error__") or entry.get("time", str(entry.get(objective)))
        result = _result(found, entry.get("times", ()))
        results[tuple(entry[name] for name in names)] = replace(result, energy_mj=_energy(entry, result))
    return _recorded(str(data["kernel_name"]), str(data["device_name"]), names, results, data["tune_params"])


def _energy(entry: Mapping[str, Any], result: RecordedResult) -> float | None:
    """Millijoules of a call, where an observer of Kernel Tuner's measured joules."""
    found = next((entry[name] for name in _JOULES if name in entry), None)
    if result.median_ms is None or isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return 1e3 * found if 0.0 < found < math.inf else None


def _t4(data: Mapping[str, Any]) -> Recorded:
    metadata = data.get("metadata", {})
    unit = _UNITS_MS[str(metadata.get("timeunit", "milliseconds")).lower()]
    names = list(data["results"][0]["configuration"])
    results = {}
    for entry in data["results"]:
        validity = entry.get("invalidity", "correct")
        measured = _timed(entry)
        found = validity if validity != "correct" or measured is None else measured["value"]
        key = tuple(entry["configuration"][name] for name in names)
        own = unit if measured is None else _UNITS_MS.get(str(measured.get("unit", "")).lower(), unit)
        results[key] = _result(found, entry.get("times", {}).get("runtimes") or (), own)
    return _recorded(str(metadata.get("kernel", "")), str(metadata.get("device", "")), names, results)


def _timed(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The measurement of T4 that is a time: the one of that name, else what was tuned for if its unit is one of time.

    What is tuned for may be GFLOP/s, of which more is better.
    """
    by_name: dict[str, Mapping[str, Any]] = {str(m["name"]): m for m in entry.get("measurements", ())}
    if "time" in by_name:
        return by_name["time"]
    wanted = (by_name[name] for name in entry.get("objectives") or () if name in by_name)
    return next((m for m in wanted if str(m.get("unit", "")).lower() in _UNITS_MS), None)


def _ktt(data: Mapping[str, Any]) -> Recorded:
    metadata, entries = data["Metadata"], data["Results"]
    unit = _UNITS_MS[str(metadata.get("TimeUnit", "Milliseconds")).lower()]
    names = [str(pair["Name"]) for pair in entries[0]["Configuration"]]
    results = {}
    for entry in entries:
        config = {pair["Name"]: pair["Value"] for pair in entry["Configuration"]}
        found = entry["TotalDuration"] if entry["Status"] == "Ok" else entry["Status"]
        results[tuple(config[name] for name in names)] = _result(found, (), unit)
    return _recorded(str(entries[0].get("KernelName", "")), str(metadata.get("Device", "")), names, results)


def _recorded(
    name: str, device: str, names: Sequence[str], results: Mapping[tuple[Value, ...], RecordedResult],
    listed: Mapping[str, Iterable[Value]] | None = None,
) -> Recorded:  # fmt: skip
    """With the values that the file lists for each parameter, if it does, then others that occur in it."""
    parameters = {
        parameter: tuple(dict.fromkeys([*(listed or {}).get(parameter, ()), *(key[i] for key in results)]))
        for i, parameter in enumerate(names)
    }
    if not results:
        raise ValueError("it holds no result")
    return Recorded(name, device, parameters, results)


def _result(found: object, times: Sequence[float], unit_ms: float = 1.0) -> RecordedResult:
    """A time, or what stands in its place."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return RecordedResult(_FAILURES.get(str(found), Outcome.LAUNCH_ERROR), None)
    if not 0.0 < found < math.inf:
        return RecordedResult(Outcome.LAUNCH_ERROR, None)  # NaN too: it is not greater than 0
    return RecordedResult(Outcome.OK, float(found) * unit_ms, tuple(float(time) * unit_ms for time in times))


def written(recorded: Recorded, form: str) -> str:
    """A recording in one of `FORMATS`, as JSON."""
    document = _as_kernel_tuner(recorded) if form == "kernel-tuner" else _as_t4(recorded)
    return json.dumps(document, indent=1) + "\n"


_AS_CLASS = {Outcome.INFEASIBLE: "InvalidConfig", Outcome.COMPILE_ERROR: "CompilationFailedConfig"}
_AS_INVALIDITY = {
    Outcome.INFEASIBLE: "constraints", Outcome.COMPILE_ERROR: "compile", Outcome.TIMEOUT: "timeout",
    Outcome.WRONG_RESULT: "correctness",
}  # fmt: skip


def _as_kernel_tuner(recorded: Recorded) -> dict[str, Any]:
    cache = {}
    for key, result in recorded.results.items():
        entry: dict[str, Any] = dict(zip(recorded.parameters, key, strict=True))
        if result.median_ms is None:
            entry["time"] = _AS_CLASS.get(result.outcome, "RuntimeFailedConfig")
        else:
            entry |= {"time": result.median_ms, "times": list(result.times_ms or (result.median_ms,))}
        cache[",".join(map(str, key))] = entry
    return {
        "device_name": recorded.device,
        "kernel_name": recorded.name,
        "problem_size": "unknown",
        "tune_params_keys": list(recorded.parameters),
        "tune_params": {name: list(values) for name, values in recorded.parameters.items()},
        "objective": "time",
        "cache": cache,
    }


def _as_t4(recorded: Recorded) -> dict[str, Any]:
    results = []
    for key, result in recorded.results.items():
        ok = result.median_ms is not None
        invalidity = "correct" if ok else _AS_INVALIDITY.get(result.outcome, "runtime")
        entry: dict[str, Any] = {"configuration": dict(zip(recorded.parameters, key, strict=True))}
        times = {"runtimes": list(result.times_ms or (result.median_ms,))} if ok else {}
        entry |= {"times": times, "invalidity": invalidity, "correctness": int(ok)}
        entry["measurements"] = [{"name": "time", "value": result.median_ms, "unit": "ms"}] if ok else []
        results.append(entry | {"objectives": ["time"]})
    metadata = {"timeunit": "milliseconds", "kernel": recorded.name, "device": recorded.device}
    return {"schema_version": "1.0.0", "metadata": metadata, "results": results}
