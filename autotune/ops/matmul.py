"""The op `matmul`: batched strided matrix products, the building block of attention that is not fused.

Logical shapes are (B, NH, M, K), (B, NH, K, N) and (B, NH, M, N) whatever the layout; two axes over matrices, so
that the heads of a (B,T,NH,HS) tensor can be multiplied where they lie. `layout` says which matrices are stored
transposed: `nt` stores A as (M, K) and B as (N, K), which makes C = alpha·QKᵀ of attention's Q and K.

`mask` says which triangle matters (aligned bottom-right, as attention's causal mask):
`c_lower` scores: elements j > i + N - M of C are 0, and tiles of them are not computed;
`a_lower` P·V and dS·K: A is 0 where k > i + K - M, and kernels need not read it there;
`a_upper` Pᵀ·dO and dSᵀ·Q (layout `tn`): A is 0 where k < i + K - M, likewise.
"""

import math

import numpy as np

from autotune.ops.base import Arrays, Field, Op, contiguous
from autotune.plan import Role, TensorSpec
from autotune.problem import Problem
from autotune.reference import matmul as reference
from autotune.reference.inputs import normal

LAYOUTS = ("nn", "nt", "tn", "tt")
MASKS = ("none", "c_lower", "a_lower", "a_upper")

_EMULATED_FLOPS = 0.8e9
"""What the emulator executes in about a second."""


class Matmul(Op):
    """C = alpha·A·B for every batch and head, sums in fp32."""

    name = "matmul"
    summary = "batched matrix product: c = alpha * a * b"
    fields = (
        Field("B", "int", 4, help="batch size"),
        Field("NH", "int", 12, help="matrices per batch entry (attention's heads)"),
        Field("M", "int", 1024, help="rows of A and C"),
        Field("N", "int", 1024, help="columns of B and C"),
        Field("K", "int", 64, help="columns of A, rows of B"),
        Field("dtype", "choice", "fp16", choices=("fp16", "bf16", "fp32"), help="element type"),
        Field("layout", "choice", "nt", choices=LAYOUTS, help="A and B as they are (n) or stored transposed (t)"),
        Field("mask", "choice", "none", choices=MASKS, help="triangle that matters"),
        Field("alpha", "float", 1.0, help="factor of the product"),
    )
    exact_fields = ("dtype", "layout", "mask")
    error_factor = 2.0

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """a, b -> c, each matrix contiguous or the transpose of a contiguous one."""
        M, N, K = (problem.integer(name) for name in ("M", "N", "K"))
        layout = str(problem["layout"])
        return (
            _tensor(problem, "a", M, K, layout[0] == "t", "input"),
            _tensor(problem, "b", K, N, layout[1] == "t", "input"),
            _tensor(problem, "c", M, N, False, "output"),
        )

    def scalars(self, problem: Problem) -> dict[str, float]:
        """`alpha`."""
        return {"alpha": float(problem["alpha"])}

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        """Standard normal matrices; of a triangular A, zeros in the other triangle."""
        arrays = {t.name: normal(t, seed + i) for i, t in enumerate(self.tensors(problem)[:2])}
        mask = str(problem["mask"])
        if mask.startswith("a_"):
            kept = reference.triangle(mask.removeprefix("a_"), *arrays["a"].shape[-2:])
            arrays["a"] = np.where(kept, arrays["a"], arrays["a"].dtype.type(0))
        return arrays

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        """float64."""
        return {"c": reference.matmul(inputs["a"], inputs["b"], float(problem["alpha"]), str(problem["mask"]))}

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """Sums in float32, C rounded to the dtype."""
        alpha, mask = float(problem["alpha"]), str(problem["mask"])
        return {"c": reference.matmul(inputs["a"], inputs["b"], alpha, mask, low_precision=problem.dtype)}

    def flops(self, problem: Problem) -> float:
        """2·B·NH·M·N·K, halved where only a triangle matters."""
        flops = 2.0 * math.prod(problem.integer(name) for name in ("B", "NH", "M", "N", "K"))
        return flops if problem["mask"] == "none" else flops / 2

    def nbytes(self, problem: Problem) -> float:
        """Each input read once, the output written once; of a triangular A half is read."""
        a, b, c = (float(np.prod(t.shape)) for t in self.tensors(problem))
        read = a / 2 if str(problem["mask"]).startswith("a_") else a
        return (read + b + c) * self._element_bytes(problem)

    @staticmethod
    def _element_bytes(problem: Problem) -> int:
        return 4 if problem.dtype == "fp32" else 2

    def emulated(self, problem: Problem) -> Problem:
        """Fewer matrices, whole ones; of matrices too large to emulate a corner.

        The corner keeps each length's remainder modulo 256, so that last tiles are cut as those of the whole.
        """
        for B, NH in ((2, 2), (1, 2), (1, 1)):
            share = problem.replace(B=min(B, problem.integer("B")), NH=min(NH, problem.integer("NH")))
            if self.flops(share) <= _EMULATED_FLOPS:
                return share
        for names in (("M", "N"), ("K",)):
            share = share.replace(**{name: _corner(share.integer(name)) for name in names})
            if self.flops(share) <= _EMULATED_FLOPS:
                break
        return share

    def units(self, problem: Problem) -> int:
        """One per matrix."""
        return problem.integer("B") * problem.integer("NH")

    def unit_problem(self, problem: Problem) -> Problem:
        """One matrix product."""
        return problem.replace(B=1, NH=1)

    def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:
        """Slices (1, 1, …)."""
        b, head = divmod(index, problem.integer("NH"))
        return {name: array[b : b + 1, head : head + 1] for name, array in arrays.items()}


def _corner(length: int) -> int:
    return length if length <= 512 else 256 + length % 256


def _tensor(problem: Problem, name: str, rows: int, cols: int, transposed: bool, role: Role) -> TensorSpec:
    shape = (problem.integer("B"), problem.integer("NH"), rows, cols)
    strides = contiguous(shape)
    if transposed:
        strides = (*strides[:2], 1, rows)
    return TensorSpec(name, shape, strides, problem.dtype, role, name)
