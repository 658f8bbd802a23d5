"""Configurations on the reduced problems that the emulator executes in place of large ones."""

from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec

_GROUPED = "HEADS_AT_ONCE"


def executable(template: Template, problem: Problem, config: Config, spec: DeviceSpec) -> Config:
    """The configuration as it runs on a reduced problem, which may have too few heads for a full group of them.

    Where that alone rules it out, heads are grouped as by default: blocks compute the same in another order. Whoever
    wants the groups executed takes a problem of more heads, as an examination does.
    """
    mended = Space(template, problem, spec).mended(config)
    if mended is None or any(mended[name] != value for name, value in config.items() if name != _GROUPED):
        return config
    return mended
