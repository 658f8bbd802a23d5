"""From what a user asks for to an op, a problem and families."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.core.errors import NoFeasibleConfiguration, UsageError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.catalogue import of_full_precision
from autotune.families.op_ref import OpRef
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates, find_template, load_template, names_file
from autotune.families.user_functions import Named
from autotune.gpus.spec import DeviceSpec
from autotune.ops.op import Op
from autotune.tuning.joint_space import Families, Family


@dataclass(frozen=True)
class Subject:
    """What is tuned: an op, how another process finds it, and the families named (all of the op's by default).

    `label` tells apart, in the database, searches over parts of the same families.
    """

    op: Op
    source: OpRef
    templates: tuple[Template, ...]
    label: str = ""

    def problem(self, fields: Mapping[str, Value]) -> Problem:
        """The op's problem with these fields, defaults for the others."""
        return self.op.problem(**fields)


def choose_subject(
    op: str | None, templates: Sequence[str] = (), reference: Named | None = None, *, inputs: Named | None = None,
    full_precision: bool = False,
) -> Subject:  # fmt: skip
    """The op and its families; a template given as a file may bring an op of its own.

    Args:
        op: its name; None takes that of the first template file.
        templates: names of built-in families, or paths of `.cu.j2` files; by default the built-in families that are
            not historical.
        reference: the CPU reference of a user's own op, where its template does not name it.
        inputs: the function that makes its inputs, likewise.
        full_precision: only families whose products are those of the dtype's elements.

    Raises:
        NoFeasibleConfiguration: no family is left with `full_precision`.
        UsageError: an unknown op or family, families of different ops, no op at all, or a missing reference.
    """
    files = {text: load_template(Path(text)) for text in templates if names_file(text)}
    names = list(dict.fromkeys(template.op for template in files.values()))
    name = op if op is not None else names[0] if names else None
    if name is None:
        raise UsageError("nothing to search for: give --op, or --template with a file of your own")
    if any(other != name for other in names):
        raise UsageError(f"op {name!r} was asked for, but a template given is for {', '.join(names)}")
    for option, function in (("--reference", reference), ("inputs", inputs)):
        if function is not None and not files:
            raise UsageError(f"{option} goes with a template file of your own: --template my.cu.j2")
    source = OpRef(name, next(iter(files.values())).path.resolve() if files else None, reference, inputs)
    resolved = source.resolve()
    chosen = [files.get(text) or find_template(name, text) for text in templates] or _usual(name)
    chosen = list(of_full_precision(chosen)) if full_precision else chosen
    return Subject(resolved, source, tuple(replace(t, reference=resolved.version) for t in _distinct(chosen)))


def _usual(op: str) -> list[Template]:
    return [template for template in builtin_templates(op) if not template.front.historical]


def choose_families(templates: Sequence[Template], problem: Problem, spec: DeviceSpec) -> Families:
    """The families that support the problem on the device, with their spaces.

    Raises:
        NoFeasibleConfiguration: none does; the message says why of each.
    """
    refusals = {template.name: template.why_unsupported(problem, spec) for template in templates}
    chosen = [_family(template, problem, spec) for template in templates if refusals[template.name] is None]
    if not chosen:
        why = "; ".join(f"{name}: {reason}" for name, reason in refusals.items()) or "there are no templates for it"
        raise NoFeasibleConfiguration(f"no kernel family can compute {problem} on {spec.title}: {why}")
    return Families(chosen)


def require_some(families: Families) -> None:
    """Raise NoFeasibleConfiguration when every family's space is empty, saying what rules out their defaults."""
    if families.size == 0:
        why = "; ".join(f"{family.name}: {family.space.why_not(family.defaults)}" for family in families.empty)
        raise NoFeasibleConfiguration(f"no configuration passes the constraints: {why}")


def _distinct(templates: Sequence[Template]) -> tuple[Template, ...]:
    by_name: dict[str, Template] = {}
    for template in templates:
        other = by_name.setdefault(template.name, template)
        if other.path.resolve() != template.path.resolve():
            raise UsageError(f"two templates are called {template.name!r}: {other.path} and {template.path}")
    return tuple(by_name.values())


def _family(template: Template, problem: Problem, spec: DeviceSpec) -> Family:
    parameters = {parameter.name: parameter.values for parameter in template.parameters}
    return Family(template.name, template.hash, parameters, template.defaults, Space(template, problem, spec))
