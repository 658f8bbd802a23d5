"""The op `permute`: attention's tensors copied from one order of axes to another.

Pipelines whose matrix products want every head contiguous do so before and after; kernels that take strides need not.
"""

from autotune.core.dtypes import OPERAND_DTYPES, numpy_dtype
from autotune.core.plan import Role, TensorSpec
from autotune.core.problem import Problem
from autotune.ops.inputs import normal
from autotune.ops.op import LONGEST, Arrays, Field, Op, contiguous

_ORDERS = ("bthd", "bhtd")
_EMULATED_ELEMENTS = 2**20


class Permute(Op):
    """y = x, element by element, x in one order of axes and y in another."""

    name = "permute"
    summary = "a copy from one order of axes to another"
    fields = (
        Field("B", "int", 4, help="batch size"),
        Field("NH", "int", 12, help="heads"),
        Field("T", "int", 1024, help="length", maximum=LONGEST),
        Field("HS", "int", 64, help="head size"),
        Field("dtype", "choice", "fp16", choices=OPERAND_DTYPES, help="element type"),
        Field("source", "choice", "bthd", choices=_ORDERS, help="order of axes of x", has_option=False),
        Field("target", "choice", "bhtd", choices=_ORDERS, help="order of axes of y", has_option=False),
    )
    exact_fields = ("HS", "dtype", "source", "target")
    error_factor = 1.0

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """x -> y."""
        return _tensor(problem, "x", "source", "input"), _tensor(problem, "y", "target", "output")

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        x, _ = self.tensors(problem)
        return {"x": normal(x, seed)}

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:  # noqa: ARG002 - the same for all
        return {"y": inputs["x"].astype(numpy_dtype("fp64"))}

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """The same values: a copy rounds nothing."""
        return self.reference(problem, inputs)

    def flops(self, problem: Problem) -> float:  # noqa: ARG002 - the same for all
        """One, for none: a copy computes nothing, and rates stay numbers."""
        return 1.0

    def emulated(self, problem: Problem) -> Problem:
        """Fewer batches and heads."""
        for B, NH in ((2, 3), (1, 2)):
            if B * NH * problem.integer("T") * problem.integer("HS") <= _EMULATED_ELEMENTS:
                return problem.replace(B=min(B, problem.integer("B")), NH=min(NH, problem.integer("NH")))
        return problem.replace(B=1, NH=1)


def _tensor(problem: Problem, name: str, order: str, role: Role) -> TensorSpec:
    B, NH, T, HS = (problem.integer(field) for field in ("B", "NH", "T", "HS"))
    shape = (B, NH, T, HS)
    strides = contiguous(shape) if problem[order] == "bhtd" else (T * NH * HS, HS, NH * HS, 1)
    return TensorSpec(name, shape, strides, problem.dtype, role, name)
