"""One kernel family: front matter and the Jinja body."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from autotune.core.errors import ExpressionError, TemplateError
from autotune.core.problem import Problem
from autotune.core.resources import resource_root
from autotune.core.values import Config, Value, is_listed
from autotune.families.frontmatter import FrontMatter, Parameter, parse_front_matter, split_template
from autotune.families.includes import collect_includes
from autotune.families.source import Include, read_source
from autotune.families.starts import SUFFIX as STARTS
from autotune.families.starts import Start, read_starts
from autotune.gpus.spec import DeviceSpec, capability_of

SUFFIX = ".cu.j2"


@dataclass(frozen=True)
class Template:
    """A kernel family as read from `path`. `name` is the file's name without `.cu.j2`."""

    name: str
    path: Path
    front: FrontMatter
    body: str
    text: str
    starts: tuple[Start, ...] = ()
    """Configurations to begin with, from the file beside it. They do not count for `hash`."""
    reference: str = ""
    """Version of the reference that a user's own op is checked against: with another one nothing is known."""

    @property
    def op(self) -> str:
        return self.front.op

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.front.parameters

    @property
    def unproven(self) -> bool:
        """Whether it has starts, and none of them was timed or comes from a search: nobody has run it on a GPU yet."""
        return bool(self.starts) and all(start.counted for start in self.starts)

    def lists(self, config: Config) -> bool:
        """Whether a configuration has a listed value for each parameter, and nothing else."""
        return config.keys() == {parameter.name for parameter in self.parameters} and all(
            is_listed(config[parameter.name], parameter.values) for parameter in self.parameters
        )

    @property
    def defaults(self) -> dict[str, Value]:
        """The family's own choice of configuration."""
        return dict(self.front.defaults)

    @cached_property
    def includes(self) -> tuple[Include, ...]:
        """Headers that the body includes, transitively, each after what it needs itself."""
        return collect_includes(self.body, (self.path.parent, resource_root("templates")), str(self.path))

    @cached_property
    def hash(self) -> str:
        """Content hash of the file and its headers: tells whether a record still means this code and this reference."""
        digest = hashlib.sha256(self.text.encode())
        for part in (*(include.text for include in self.includes), self.reference):
            digest.update(part.encode())
        return digest.hexdigest()[:16]

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Within the block an expression that fails is said to be in this file."""
        try:
            yield
        except ExpressionError as error:
            if str(self.path) in str(error):
                raise
            raise ExpressionError(f"{self.path}: {error}") from error

    def executed_flops(self, op_flops: float, problem: Problem) -> float:
        """What the family executes: its `[cost] flops` where it says so, else the op's own count."""
        cost = self.front.flops
        with self.named_errors():
            return op_flops if cost is None else max(op_flops, float(cost(problem.fields)))

    def why_unsupported(self, problem: Problem, spec: DeviceSpec) -> str | None:
        """Why this family cannot compute the problem on the device; None when it can.

        Raises:
            ExpressionError: a `supports` expression is wrong.
        """
        if problem.op != self.op:
            return f"it computes {self.op}, not {problem.op}"
        for name, source in problem.implied:
            if problem.says(name) and name not in self.text:
                return f"it needs {name} == {source}: it computes both alike"
        with self.named_errors():
            for supported in self.front.supports:
                if not supported.expr({**problem.fields, "device": spec}):
                    return f"it needs {supported.needed}"
        return self._why_not_on(spec)

    def _why_not_on(self, spec: DeviceSpec) -> str | None:
        arch = self.front.arch
        if arch is None:
            return None
        needed = capability_of(arch)
        # 'a' targets (wgmma, tcgen05) exist on that one architecture only.
        fits = spec.compute_capability == needed if arch.endswith("a") else spec.compute_capability >= needed
        return None if fits else f"it needs {arch}, {spec.title} is {spec.arch}"


def load_template(path: Path) -> Template:
    """Read a template from a file.

    Raises:
        TemplateError: the file cannot be read, its name cannot be printed, its front matter is wrong, or the starts
            beside it are.
    """
    if not path.name.isprintable():
        raise TemplateError(f"the template's name {path.name!r} has characters that cannot be printed; rename the file")
    try:
        text = read_source(path).removeprefix("\ufeff")  # some editors put a byte-order mark first
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"cannot read the template {path}: {error}") from error
    written, body = split_template(text, str(path))
    front, name = parse_front_matter(written, str(path)), path.name.removesuffix(SUFFIX)
    known = {parameter.name: parameter.values for parameter in front.parameters}
    return Template(name, path, front, body, text, read_starts(path.with_name(name + STARTS), known))


def names_file(text: str) -> bool:
    """Whether a template is named by its file, not by the name of a shipped family."""
    return text.endswith(SUFFIX) or "/" in text or os.path.isfile(text)  # noqa: PTH113 - no error for odd names


@cache
def builtin_templates(op: str) -> tuple[Template, ...]:
    """The families shipped for an op, by name."""
    folder = resource_root("templates") / op
    return tuple(load_template(path) for path in sorted(folder.glob("*" + SUFFIX)))


def find_template(op: str, name: str) -> Template:
    """A shipped family by name.

    Raises:
        TemplateError: there is none; the message lists those there are.
    """
    families = {template.name: template for template in builtin_templates(op)}
    if name not in families:
        known = ", ".join(families) or "none"
        raise TemplateError(f"op {op!r} has no template {name!r}; it has: {known} (or give a path to a {SUFFIX} file)")
    return families[name]
