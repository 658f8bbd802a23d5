"""Names an op in a form that another process can resolve."""

from dataclasses import dataclass, replace
from pathlib import Path

from autotune.core.errors import UsageError
from autotune.families.template import Template, load_template
from autotune.families.user_op import CustomOp, load_reference
from autotune.ops.op import Op
from autotune.ops.registry import BUILTIN, get_op, register


@dataclass(frozen=True)
class OpRef:
    """A built-in op by name, or a user's by its template and reference function. Picklable."""

    name: str
    template: Path | None = None
    reference: str | None = None

    def resolve(self) -> Op:
        """The op, registered under its name.

        Raises:
            UsageError: a user's op without a reference, or one that cannot be loaded.
        """
        if self.template is None or (self.reference is None and self.name in BUILTIN):
            return get_op(self.name)
        if self.reference is None:
            raise UsageError(
                f"op {self.name!r} is not built in; give its CPU reference with --reference module:function"
            )
        return register(CustomOp(load_template(self.template), load_reference(self.reference, self.template.parent)))


def load_own(path: Path, reference: str | None) -> Template:
    """A user's family as records know it: the version of its reference is part of its own. Its op is registered.

    Raises:
        TemplateError: see `load_template`.
        UsageError: see `OpRef.resolve`.
    """
    own = load_template(path)
    return replace(own, reference=OpRef(own.op, path, reference).resolve().version)
