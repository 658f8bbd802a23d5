"""Strict JSON for records: every database and every JSON reader accepts it, NaN and infinities survive."""

import json
import math
from typing import Any

_FLOAT = "$float"


def dumps(data: Any) -> str:
    """One line of JSON, key order kept; NaN and infinities become `{"$float": "nan"}`."""
    return json.dumps(_encode(data), allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """Read what `dumps` wrote.

    Raises:
        ValueError: not JSON, or it holds the bare words NaN and Infinity, which JSON has not.
    """
    return json.loads(text, object_hook=_decode, parse_constant=_refuse)


def _encode(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return {_FLOAT: str(data)}
    if isinstance(data, dict):
        return {key: _encode(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_encode(value) for value in data]
    return data


def _decode(item: dict[str, Any]) -> Any:
    return float(item[_FLOAT]) if item.keys() == {_FLOAT} else item


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
