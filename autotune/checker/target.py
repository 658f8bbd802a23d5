"""Which candidates a check is about."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.answers.best import Best
from autotune.answers.lookup import best, device_spec
from autotune.core.candidate import Candidate
from autotune.core.errors import NoFeasibleConfiguration, UsageError
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.families.op_ref import OpRef
from autotune.families.reduced import reduced
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates, find_template, load_template, names_file
from autotune.families.unreferenced import resolve
from autotune.families.user_functions import Named
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import BUILTIN, get_op

Functions = tuple[Named | None, Named | None]
"""Reference and inputs of a user's op, where given."""


@dataclass(frozen=True)
class Target:
    """A candidate of a family for a problem; `executed` is the problem that the emulator runs in its place.

    Constraints are asked of the problem itself: a configuration may make no sense for fewer heads. Those that a kernel
    must keep hold for both.
    """

    op: OpRef
    template: Template
    problem: Problem
    executed: Problem
    spec: DeviceSpec
    candidate: Candidate


def find_target(
    op: str | None,
    template: str | Path | None,
    params: Mapping[str, Value],
    functions: Functions | None,
    device: str | None,
    db: str | Path | None,
    fields: Mapping[str, Value],
) -> Target:
    """The best candidate known, or that of the family named, with some parameters changed.

    Raises:
        UsageError: an unknown family or parameter, or a configuration that is not valid.
        NoFeasibleConfiguration: the family does not compute the problem on the device.
    """
    family, ref = _family(op, template, functions)
    known = _best(ref, family, device, db, fields)
    chosen = family or known.template
    assert chosen is not None  # a best answer has its template
    _require_support(chosen, known.problem, known.device)
    space = Space(chosen, known.problem, known.device)
    base = known.config if known.candidate.template == chosen.name else space.default()
    return _target(ref, chosen, known, _changed(space, chosen, base, params))


def find_targets(
    op: str | None,
    template: str | Path | None,
    functions: Functions | None,
    device: str | None,
    db: str | Path | None,
    limit: int | None,
    seed: int,
    fields: Mapping[str, Value],
) -> Iterator[tuple[Target, Candidate]]:
    """Every valid candidate of the family, or of all families that compute the problem."""
    family, ref = _family(op, template, functions)
    known = _best(ref, family, device, db, fields)
    families = (family,) if family is not None else builtin_templates(ref.name)
    for chosen in families:
        if chosen.why_unsupported(known.problem, known.device) is not None:
            continue
        space = Space(chosen, known.problem, known.device)
        for config in _configs(space, limit, seed):
            target = _target(ref, chosen, known, config)
            yield target, target.candidate


def _configs(space: Space, limit: int | None, seed: int) -> Iterator[Config]:
    if limit is None or limit >= space.size:
        yield from space.configs()
        return
    order = np.random.default_rng(seed).permutation(space.size)[:limit]
    yield from (space[int(position)] for position in order)


def _family(op: str | None, template: str | Path | None, functions: Functions | None) -> tuple[Template | None, OpRef]:
    if template is None:
        return None, OpRef(_named(op))
    if names_file(str(template)):
        own = load_template(Path(template))
        if op not in {None, own.op}:
            raise UsageError(f"the template {template} computes {own.op!r}, not {op!r}")
        reference, inputs = functions or (None, None)
        unknown = own.op not in BUILTIN and not own.front.reference
        ref = OpRef(own.op, Path(template), reference or ("" if unknown else None), inputs)
        return replace(own, reference=resolve(ref).version), ref
    return find_template(_named(op), str(template)), OpRef(_named(op))


def _named(op: str | None) -> str:
    return get_op("forward" if op is None else op).name


def _best(
    ref: OpRef, family: Template | None, device: str | None, db: str | Path | None, fields: Mapping[str, Any]
) -> Best:
    if family is None or ref.template is None:
        return best(ref.name, device=device, db=db, **fields)
    problem = get_op(ref.name).problem(**fields)
    spec = device_spec(device, db)
    _require_support(family, problem, spec)
    space = Space(family, problem, spec)
    candidate = space.candidate(space.default())
    return Best(
        answer="default", kind="none", found_ms=None, problem=problem, device=spec, candidate=candidate, template=family
    )


def _require_support(family: Template, problem: Problem, spec: DeviceSpec) -> None:
    unsupported = family.why_unsupported(problem, spec)
    if unsupported is not None:
        raise NoFeasibleConfiguration(
            f"template {family.name} does not compute {problem} on {spec.title}: {unsupported}"
        )


def _changed(space: Space, family: Template, base: Config, params: Mapping[str, Value]) -> Config:
    names = [parameter.name for parameter in family.parameters]
    unknown = sorted(params.keys() - set(names))
    if unknown:
        raise UsageError(f"template {family.name} has no parameter {unknown[0]}; it has {', '.join(names)}")
    config = {**base, **params}
    reason = space.why_not(config)
    if reason is not None:
        raise UsageError(f"not a valid configuration of {family.name}: {reason}")
    return config


def _target(ref: OpRef, family: Template, known: Best, config: Config) -> Target:
    executed = reduced(get_op(ref.name), family, known.problem, config, known.device)
    candidate = Space(family, known.problem, known.device).candidate(config)
    return Target(ref, family, known.problem, executed, known.device, candidate)
