"""Where searches of a family begin: configurations that were found fast, as data beside its template.

`templates/forward/flash_mma.starts.toml` belongs to `flash_mma.cu.j2`:

    [[start]]
    when    = "HS == 32 and device.compute_capability >= 80"
    values  = { BLOCK_N = 128, MIN_BLOCKS = 1, Q_IN_REGISTERS = false, OVERLAP = 16 }
    device  = "h200"
    problem = "forward B=4 NH=64 NH_kv=64 T=4096 T_kv=4096 HS=32 dtype=fp16 causal=0 layout=bthd"
    origin  = "winner, 2.09 ms"

`autotune db starts` writes such files from records and checks them. They are no part of a family's version: another
start changes no kernel.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.errors import TemplateError
from autotune.core.values import Value, is_listed
from autotune.families.expressions import Expression

SUFFIX = ".starts.toml"
_TIME = re.compile(r"(\d+(?:\.\d+)?) ms$")
_TEXTS = ("when", "device", "problem", "origin")
_HEAD = """\
# Where searches of this family begin, first to last: values that take the place of the defaults where `when` holds.
# Written and checked by `autotune db starts`.
"""


@dataclass(frozen=True)
class Start:
    """Values that take the place of the defaults where `when` holds of a problem and a device.

    `device` is the GPU they come from, `problem` (its key) one that they are good for, `origin` how that is known.
    """

    when: Expression
    values: tuple[tuple[str, Value], ...]
    device: str
    problem: str
    origin: str
    note: str = ""

    @property
    def ms(self) -> float | None:
        """The time that `origin` says it took for `problem` on `device`; None where it says none that was measured."""
        found = _TIME.search(self.origin)
        return None if found is None or "estimated" in self.origin else float(found[1])

    @property
    def counted(self) -> bool:
        """Whether it comes from counting alone, as `origin` says where nothing was measured."""
        return "not measured" in self.origin

    def keeping(self, known: Mapping[str, Sequence[Value]]) -> "Start":
        """The same without the values that are not among those of the parameters."""
        kept = tuple((name, value) for name, value in self.values if is_listed(value, known[name]))
        return Start(self.when, kept, self.device, self.problem, self.origin, self.note)


def read_starts(path: Path, known: Mapping[str, Sequence[Value]]) -> tuple[Start, ...]:
    """The starts in a file, in order; none where there is no file.

    Args:
        path: the file.
        known: the values of each of the family's parameters.

    Raises:
        TemplateError: the file cannot be read, a key is missing or unknown, a value is none that its parameter takes.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise TemplateError(f"{path} is not valid TOML: {error}") from error
    items = data.pop("start", [])
    if data or not isinstance(items, list):
        raise TemplateError(f"{path}: it holds [[start]] tables and nothing else, not {', '.join(data) or repr(items)}")
    try:
        return tuple(_read(item, known) for item in items)
    except TemplateError as error:
        raise type(error)(f"{path}: {error}") from error


def _read(item: Any, known: Mapping[str, Sequence[Value]]) -> Start:
    if not isinstance(item, dict):
        raise TemplateError(f"[[start]] is a table, not {item!r}")
    unknown = sorted(item.keys() - {*_TEXTS, "values", "note"})
    if unknown:
        raise TemplateError(f"[[start]] has an unknown key {unknown[0]!r}; known: {', '.join(_TEXTS)}, values, note")
    for name in (*_TEXTS, *item.keys() & {"note"}):
        if not isinstance(item.get(name), str) or not item[name].strip():
            raise TemplateError(f"[[start]] needs a text {name!r}, got {item.get(name)!r}")
    values = item.get("values")
    if not isinstance(values, dict) or not values:
        raise TemplateError(f"the start for {item['when']!r} changes nothing; give it 'values' of parameters")
    for name, value in values.items():
        if name not in known:
            raise TemplateError(f"the start for {item['when']!r} names {name!r}, which is no parameter")
        if not is_listed(value, known[name]):
            raise TemplateError(f"a start's {name}={value!r} is not among its values {list(known[name])!r}")
    when, device, problem, origin = (item[name] for name in _TEXTS)
    return Start(Expression(when), tuple(values.items()), device, problem, origin, item.get("note", ""))


def starts_text(starts: Iterable[Start]) -> str:
    """A file of starts, as `read_starts` reads it."""
    return _HEAD + "".join(f"\n{_table(start)}" for start in starts)


def _table(start: Start) -> str:
    values = ", ".join(f"{name} = {_toml(value)}" for name, value in start.values)
    lines = ["[[start]]", *([f"note    = {_toml(start.note)}"] if start.note else [])]
    lines += [f"when    = {_toml(start.when.text)}", f"values  = {{ {values} }}"]
    lines += [f"{name:<7} = {_toml(getattr(start, name))}" for name in ("device", "problem", "origin")]
    return "\n".join(lines) + "\n"


def _toml(value: Value) -> str:
    """A value as TOML spells it; its basic strings have the escapes of JSON's."""
    return json.dumps(value, ensure_ascii=False)
