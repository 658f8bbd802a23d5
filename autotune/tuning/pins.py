"""Searches over part of the families: `--param BLOCK_M=64,128` keeps some values of a parameter, or a single one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotune.core.errors import UsageError
from autotune.core.values import Value
from autotune.families.narrow import narrowed
from autotune.families.template import Template
from autotune.tuning.choose import Subject

Wanted = Mapping[str, Value | Sequence[Value]]
"""Values to keep, by parameter; a text may list several, separated by commas."""


def pinned(subject: Subject, wanted: Wanted) -> Subject:
    """The subject with only these values; families that have such a parameter but none of the values are left out.

    A family without the parameter stays as it is.

    Raises:
        UsageError: a parameter or a value that no family has, or no family is left.
    """
    if not wanted:
        return subject
    keep = {name: _values(name, given, subject.templates) for name, given in wanted.items()}
    templates = tuple(pinned for template in subject.templates if (pinned := _pinned(template, keep)) is not None)
    if not templates:
        raise UsageError(f"no family has all of {_label(keep)}")
    return replace(subject, templates=templates, label=_label(keep))


def _label(keep: Mapping[str, Sequence[Value]]) -> str:
    return " ".join(f"{name}={','.join(map(str, values))}" for name, values in sorted(keep.items()))


def _pinned(template: Template, keep: Mapping[str, Sequence[Value]]) -> Template | None:
    lists = {parameter.name: parameter.values for parameter in template.parameters}
    kept = {name: tuple(v for v in values if v in lists[name]) for name, values in keep.items() if name in lists}
    return narrowed(template, kept) if all(kept.values()) else None


def _values(name: str, given: Value | Sequence[Value], templates: Sequence[Template]) -> tuple[Value, ...]:
    """The values meant, as families list them."""
    known = {v: None for t in templates for p in t.parameters if p.name == name for v in p.values}
    if not known:
        names = dict.fromkeys(parameter.name for template in templates for parameter in template.parameters)
        raise UsageError(f"no family has a parameter {name!r}; there are {', '.join(names)}")
    if isinstance(given, str):
        texts = {text: value for value in known for text in {str(value), str(value).lower()}}
        found = _listed(given.strip(), texts)
    else:
        values = tuple(given) if isinstance(given, Sequence) else (given,)
        found = values if values and all(value in known for value in values) else None
    if found is None:
        raise UsageError(f"parameter {name} takes {', '.join(map(str, known))}, not {given}")
    return tuple(dict.fromkeys(found))


def _listed(text: str, texts: Mapping[str, Value]) -> tuple[Value, ...] | None:
    """The values that a text lists; a value may have commas of its own (`x=head_batch,y=matrix`)."""
    if text in texts:
        return (texts[text],)
    for name in sorted(texts, key=len, reverse=True):
        if text.startswith(name + ","):
            rest = _listed(text[len(name) + 1 :].strip(), texts)
            if rest is not None:
                return (texts[name], *rest)
    return None
