"""The op `matmul`: batched strided matrix products, the building block of attention that is not fused.

Logical shapes are (B, NH, M, K), (B, NH, K, N) and (B, NH, M, N) whatever the layout; two axes over matrices, so
that the heads of a (B,T,NH,HS) tensor can be multiplied where they lie. `layout` says which matrices are stored
transposed: `nt` stores A as (M, K) and B as (N, K), which makes C = alpha·QKᵀ of attention's Q and K.

`mask` says which triangle matters (aligned bottom-right, as attention's causal mask):
`c_lower` scores: elements j > i + N - M of C are 0, and tiles of them are not computed;
`a_lower` P·V and dS·K: A is 0 where k > i + K - M, and kernels need not read it there;
`a_upper` Pᵀ·dO and dSᵀ·Q (layout `tn`): A is 0 where k < i + K - M, likewise.

`group` matrices of A and C share one of B, as query heads share a key head: B then has NH / group matrices a batch
entry. `interleaved` names the operands that lie as (B, rows, NH, columns), attention's own order. `arithmetic=tf32`
allows fp32 factors to be rounded to tf32 (10 bits of mantissa), and is judged by what that costs.
"""

import math
from typing import TYPE_CHECKING

from autotune.core.dtypes import DTYPES, OPERAND_DTYPES
from autotune.core.errors import ProblemError
from autotune.core.plan import Role, TensorSpec
from autotune.core.problem import Problem
from autotune.ops.inputs import normal
from autotune.ops.op import LONGEST, Arrays, Field, Op, Rule, contiguous

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LAYOUTS = ("nn", "nt", "tn", "tt")
MASKS = ("none", "c_lower", "a_lower", "a_upper")
INTERLEAVED = ("none", "a", "b", "c", "ab", "ac", "bc", "abc")
ARITHMETIC = ("full", "tf32")

_EMULATED_FLOPS = 0.8e9
"""What the emulator executes in about a second."""


class Matmul(Op):
    """C = alpha·A·B for every batch and head, sums in fp32."""

    name = "matmul"
    summary = "batched matrix product: c = alpha * a * b"
    fields = (
        Field("B", "int", 4, help="batch size"),
        Field("NH", "int", 12, help="matrices per batch entry (attention's heads)"),
        Field("M", "int", 1024, help="rows of A and C", maximum=LONGEST),
        Field("N", "int", 1024, help="columns of B and C", maximum=LONGEST),
        Field("K", "int", 64, help="columns of A, rows of B", maximum=LONGEST),
        Field("dtype", "choice", "fp16", choices=OPERAND_DTYPES, help="element type"),
        Field("layout", "choice", "nt", choices=LAYOUTS, help="A and B as they are (n) or stored transposed (t)"),
        Field("mask", "choice", "none", choices=MASKS, help="triangle that matters"),
        Field("alpha", "float", 1.0, help="factor of the product"),
        Field("group", "int", 1, help="matrices of A and C that share one of B"),
        Field("interleaved", "choice", "none", choices=INTERLEAVED, help="operands that lie as (B, rows, NH, columns)"),
        Field("arithmetic", "choice", "full", choices=ARITHMETIC, help="whether fp32 factors may be rounded to tf32"),
    )
    exact_fields = ("dtype", "layout", "mask", "arithmetic")
    error_factor = 2.0

    def rules(self, problem: Problem) -> tuple[Rule, ...]:  # noqa: ARG002
        """Groups are whole."""
        return (Rule("NH", "divisible", "group", "so many matrices of a share one of b"),)

    def check(self, problem: Problem) -> None:
        """tf32 is a way to multiply fp32."""
        super().check(problem)
        if problem["arithmetic"] == "tf32" and problem.dtype != "fp32":
            raise ProblemError(f"op 'matmul': arithmetic=tf32 goes with dtype=fp32, not {problem.dtype}")

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """a, b -> c, each matrix with contiguous rows, or the transpose of one."""
        M, N, K = (problem.integer(name) for name in ("M", "N", "K"))
        layout = str(problem["layout"])
        return (
            _tensor(problem, "a", M, K, layout[0] == "t", "input"),
            _tensor(problem, "b", K, N, layout[1] == "t", "input"),
            _tensor(problem, "c", M, N, False, "output"),
        )

    def scalars(self, problem: Problem) -> dict[str, float]:
        return {"alpha": float(problem["alpha"])}

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        """Standard normal matrices; of a triangular A, zeros in the other triangle."""
        import numpy as np

        from autotune.ops import matmul_reference as reference

        arrays = {t.name: normal(t, seed + i) for i, t in enumerate(self.tensors(problem)[:2])}
        mask = str(problem["mask"])
        if mask.startswith("a_"):
            kept = reference.triangle(mask.removeprefix("a_"), *arrays["a"].shape[-2:])
            arrays["a"] = np.where(kept, arrays["a"], arrays["a"].dtype.type(0))
        return arrays

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        return {"c": self._product(problem, inputs, None)}

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """Sums in float32, C rounded to the dtype; factors rounded to tf32 where that is allowed."""
        from autotune.ops import matmul_reference as reference

        if problem["arithmetic"] == "tf32":
            inputs = {name: reference.rounded_to_tf32(array) for name, array in inputs.items()}
        return {"c": self._product(problem, inputs, problem.dtype)}

    @staticmethod
    def _product(problem: Problem, inputs: Arrays, low_precision: str | None) -> "NDArray[np.float64]":
        import numpy as np

        from autotune.ops import matmul_reference as reference

        b = np.repeat(inputs["b"], problem.integer("group"), axis=1)
        return reference.matmul(inputs["a"], b, float(problem["alpha"]), str(problem["mask"]), low_precision)

    def flops(self, problem: Problem) -> float:
        """2·B·NH·M·N·K, halved where only a triangle matters."""
        flops = 2.0 * math.prod(problem.integer(name) for name in ("B", "NH", "M", "N", "K"))
        return flops if problem["mask"] == "none" else flops / 2

    def nbytes(self, problem: Problem) -> float:
        """Each input read once, the output written once; of a triangular A half is read."""
        a, b, c = (float(math.prod(t.shape)) for t in self.tensors(problem))
        read = a / 2 if str(problem["mask"]).startswith("a_") else a
        return (read + b + c) * DTYPES[problem.dtype].size

    def emulated(self, problem: Problem) -> Problem:
        """Fewer matrices, whole ones; of matrices too large to emulate a corner.

        The corner keeps each length's remainder modulo 256, so that last tiles are cut as those of the whole.
        """
        group = problem.integer("group")
        for B, shared in ((2, 2), (1, 2), (1, 1)):
            NH = min(shared * group, problem.integer("NH"))
            share = problem.replace(B=min(B, problem.integer("B")), NH=NH)
            if self.flops(share) <= _EMULATED_FLOPS:
                return share
        for names in (("M", "N"), ("K",)):
            share = share.replace(**{name: _corner(share.integer(name)) for name in names})
            if self.flops(share) <= _EMULATED_FLOPS:
                break
        return share

    def units(self, problem: Problem) -> int:
        """One per matrix of B."""
        return problem.integer("B") * problem.integer("NH") // problem.integer("group")

    def unit_problem(self, problem: Problem) -> Problem:
        """The products with one matrix of B."""
        return problem.replace(B=1, NH=problem["group"])

    def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:
        """Slices (1, group, …), of B (1, 1, …)."""
        group = problem.integer("group")
        b, shared = divmod(index, problem.integer("NH") // group)
        own, common = slice(shared * group, (shared + 1) * group), slice(shared, shared + 1)
        return {name: array[b : b + 1, common if name == "b" else own] for name, array in arrays.items()}


def _corner(length: int) -> int:
    return length if length <= 512 else 256 + length % 256


def _tensor(problem: Problem, name: str, rows: int, cols: int, transposed: bool, role: Role) -> TensorSpec:
    B, NH = problem.integer("B"), problem.integer("NH")
    heads = NH // problem.integer("group") if name == "b" else NH
    n, m = (cols, rows) if transposed else (rows, cols)  # as stored
    if name in str(problem["interleaved"]):
        batch, row, head, col = contiguous((B, n, heads, m))
    else:
        batch, head, row, col = contiguous((B, heads, n, m))
    strides = (batch, head, col, row) if transposed else (batch, head, row, col)
    return TensorSpec(name, (B, heads, rows, cols), strides, problem.dtype, role, name)
