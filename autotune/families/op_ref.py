"""Names an op in a form that another process can resolve."""

from dataclasses import dataclass, replace
from pathlib import Path

from autotune.core.errors import UsageError
from autotune.families.template import Template, load_template
from autotune.families.user_functions import Function, Named, Pickled, load_function
from autotune.families.user_op import CustomOp
from autotune.ops.op import Op
from autotune.ops.registry import BUILTIN, get_op, register


@dataclass(frozen=True)
class OpRef:
    """A built-in op by name, or a user's by its template and its functions. Picklable.

    `reference` and `inputs`: those that the template names where None.
    """

    name: str
    template: Path | None = None
    reference: Named | None = None
    inputs: Named | None = None

    def resolve(self) -> Op:
        """The op, registered under its name.

        Raises:
            UsageError: a user's op without a reference, or one that cannot be loaded.
        """
        if self.template is None:
            return get_op(self.name)
        template = load_template(self.template)
        reference = self.reference or template.front.reference or None
        if reference is None:
            if self.name in BUILTIN:
                if self.inputs or template.front.inputs:
                    raise UsageError(f"op {self.name!r} is built in and makes its own inputs: leave out 'inputs'")
                return get_op(self.name)
            raise UsageError(
                f"op {self.name!r} is not built in; give its CPU reference with --reference module:function, or as "
                'reference = "module:function" in the front matter'
            )
        return register(own_op(template, reference, self.inputs, said_by_option=self.reference is not None))


def own_op(
    template: Template, reference: Named | Function, inputs: Named | None, *, said_by_option: bool = True
) -> CustomOp:
    """A user's op, with the function for inputs that is given, else that of the template.

    Raises:
        TemplateError: see `CustomOp`.
        UsageError: a function cannot be loaded.
    """
    folder = template.path.parent
    option = "--reference" if said_by_option else f"{template.path}: reference"
    function, version = (
        load_function(reference, folder, option) if isinstance(reference, str | Pickled) else (reference, "")
    )
    chosen = inputs or template.front.inputs or None
    if chosen is None:
        return CustomOp(template, function, None, version)
    made, of_inputs = load_function(chosen, folder, "inputs" if inputs else f"{template.path}: inputs")
    return CustomOp(template, function, made, f"{version}{of_inputs}")


def load_own(path: Path, reference: Named | None, inputs: Named | None = None) -> Template:
    """A user's family as records know it: the version of its reference is part of its own. Its op is registered.

    Raises:
        TemplateError: see `load_template`.
        UsageError: see `OpRef.resolve`.
    """
    own = load_template(path)
    return replace(own, reference=OpRef(own.op, path, reference, inputs).resolve().version)
