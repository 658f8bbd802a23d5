"""Template + problem + configuration -> CUDA source and its launch plan. The only place where templates render."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.core.dtypes import DTYPES
from autotune.core.errors import TemplateError
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.families.bodies import is_shipped, rendered
from autotune.families.flags import checked, merged
from autotune.families.includes import require_named
from autotune.families.planning import make_plan
from autotune.families.signature import agreed
from autotune.families.source import NVCC_FLAGS, KernelSource
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op


def render(template: Template, problem: Problem, config: Config, spec: DeviceSpec) -> KernelSource:
    """The source and plan of one candidate for one problem on one device.

    Raises:
        TemplateError: the body uses an unknown name, fails, or leaves the sandbox; or the plan does.
    """
    space = Space(template, problem, spec)
    candidate = space.candidate(config)
    namespace = space.namespace(candidate.config)
    body = _body(template, {**namespace, "ctype": DTYPES[problem.dtype].ctype})
    flags = _flags(template, namespace)
    with template.named_errors():
        planned = make_plan(template, get_op(problem.op), problem, namespace)
    plan = agreed(str(template.path), body, template.includes, planned)
    source = KernelSource(candidate, problem, "", body, template.includes, plan, flags)
    return replace(source, header=_header(template, source, spec))


def _flags(template: Template, namespace: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        return checked([rendered(template.path, 0, flag, namespace) for flag in template.front.flags])
    except TemplateError as error:
        raise TemplateError(f"{template.path}: flags: {error}") from error


def _body(template: Template, namespace: Mapping[str, Any]) -> str:
    before = template.text[: template.text.find(template.body)].count("\n")  # lines of the front matter
    text = rendered(template.path, before, template.body, namespace)
    if not is_shipped(template.path):
        require_named(text, {include.name for include in template.includes}, str(template.path))
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise TemplateError(f"{template.path}: rendering failed: a surrogate is no text")
    return text.lstrip("\n")


def _header(template: Template, source: KernelSource, spec: DeviceSpec) -> str:
    """The comment at the top of a rendered file."""
    fields = " ".join(source.problem.key.split(" ")[1:])
    config = " ".join(source.candidate.key.split(" ")[1:])
    options = " ".join(merged(NVCC_FLAGS, source.flags))
    return (
        f"// autotune: {template.op}/{template.name}: {template.front.summary}\n"
        f"// problem:       {fields}\n"
        f"// configuration: {config or 'none'}\n"
        f"// compile:       nvcc {options} -arch={spec.arch} -I templates -cubin <this file>\n"
        f"// hash:          {source.hash}\n\n"
    )
