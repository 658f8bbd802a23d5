"""Configurations on the reduced problems that the emulator executes in place of large ones."""

from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.op import Op

_GROUPED = "HEADS_AT_ONCE"


def executable(template: Template, problem: Problem, config: Config, spec: DeviceSpec) -> Config:
    """The configuration as it runs on a reduced problem, which may have too few heads for a full group of them.

    Where that alone rules it out, heads are grouped as by default: blocks compute the same in another order. Whoever
    wants the groups executed takes a problem of more heads, as an examination does.
    """
    space = Space(template, problem, spec)
    mended = space.mended(config)
    if mended is not None and all(mended[name] == value for name, value in config.items() if name != _GROUPED):
        return mended
    # A search may have no use for it here; as a kernel it is what it is.
    grouped = {**config, _GROUPED: template.defaults[_GROUPED]} if _GROUPED in config else config
    if space.why_not(config, called=True) is None or space.why_not(grouped, called=True) is not None:
        return config
    return grouped


def computes(template: Template, problem: Problem, config: Config, spec: DeviceSpec) -> bool:
    """Whether the configuration, as it is `executable`, computes the problem; no matter whether a search would ask."""
    if template.why_unsupported(problem, spec) is not None:
        return False
    executed = executable(template, problem, config, spec)
    return Space(template, problem, spec).why_not(executed, called=True) is None


def reduced(op: Op, template: Template, problem: Problem, config: Config, spec: DeviceSpec) -> Problem:
    """What the emulator executes of one configuration: the first of the op's smaller problems that it computes."""
    return next((one for one in op.smaller(problem) if computes(template, one, config, spec)), problem)
