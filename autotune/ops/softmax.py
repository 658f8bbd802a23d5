"""The ops `softmax` and `softmax_backward`: attention's rows of scores, between the matrix products.

Shapes are (B, NH, T, T_kv). A causal mask is aligned bottom-right: query i sees key j if j <= i + T_kv - T. Of the
inputs, keys that a query does not see are not read and may hold anything; in the outputs they are 0.
"""

from typing import Any

from autotune.core.dtypes import DTYPES, OPERAND_DTYPES, epsilon
from autotune.core.plan import Role, TensorSpec
from autotune.core.problem import Problem
from autotune.ops.inputs import normal
from autotune.ops.op import LONGEST, Arrays, Field, Op, contiguous

_EMULATED_ELEMENTS = 2**21
"""Scores that the emulator takes through a row-wise kernel in about a second."""


class RowOp(Op):
    """What both share."""

    fields: tuple[Field, ...] = (
        Field("B", "int", 4, help="batch size"),
        Field("NH", "int", 12, help="heads"),
        Field("T", "int", 1024, help="query length: rows", maximum=LONGEST),
        Field("T_kv", "int", default_from="T", help="key length: columns; default T", maximum=LONGEST),
        Field("dtype", "choice", "fp16", choices=OPERAND_DTYPES, help="element type"),
        Field("causal", "bool", True, help="mask keys after the query: query i sees keys up to i + T_kv - T"),
        Field("scale", "float", 0.125, help="factor of the scores"),
    )
    exact_fields = ("dtype", "causal")
    has_hard_inputs = True

    def scalars(self, problem: Problem) -> dict[str, float]:
        return {"scale": float(problem["scale"])}

    def _tensor(self, problem: Problem, name: str, role: Role) -> TensorSpec:
        B, NH, T, T_kv = (problem.integer(field) for field in ("B", "NH", "T", "T_kv"))
        shape = (B, NH, T, T_kv)
        return TensorSpec(name, shape, contiguous(shape), problem.dtype, role, name)

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        tensors = [tensor for tensor in self.tensors(problem) if tensor.role == "input"]
        return {tensor.name: normal(tensor, seed + i) for i, tensor in enumerate(tensors)}

    def hide(self, problem: Problem, inputs: Arrays, seed: int | None = None) -> Arrays:  # noqa: ARG002 - all of them
        """NaN wherever a query does not see a key."""
        from autotune.ops import softmax_reference as reference

        if not problem["causal"]:
            return inputs
        return {name: reference.hidden_as_nan(array) for name, array in inputs.items()}

    def pairs(self, problem: Problem) -> int:
        """(query, key) pairs of one matrix that are seen."""
        T, T_kv = problem.integer("T"), problem.integer("T_kv")
        if not problem["causal"]:
            return T * T_kv
        first = max(1, T_kv - T + 1)  # keys in the first row that sees any; T_kv in the last
        return (T_kv - first + 1) * (first + T_kv) // 2

    def flops(self, problem: Problem) -> float:
        """Five operations a pair; half of the pairs are seen when causal."""
        matrices = problem.integer("B") * problem.integer("NH")
        pairs = matrices * problem.integer("T") * problem.integer("T_kv")
        return 5.0 * (pairs / 2 if problem["causal"] else pairs)

    def nbytes(self, problem: Problem) -> float:
        """Of each input the pairs that are seen, read once; the whole output, written once."""
        inputs = sum(tensor.role == "input" for tensor in self.tensors(problem))
        elements = inputs * self.pairs(problem) + problem.integer("T") * problem.integer("T_kv")
        return float(problem.integer("B") * problem.integer("NH") * elements * DTYPES[problem.dtype].size)

    def emulated(self, problem: Problem) -> Problem:
        """Fewer batches and heads, whole matrices."""
        elements = problem.integer("T") * problem.integer("T_kv")
        for B, NH in ((2, 2), (1, 2)):
            if B * NH * elements <= _EMULATED_ELEMENTS:
                return problem.replace(B=min(B, problem.integer("B")), NH=min(NH, problem.integer("NH")))
        return problem.replace(B=1, NH=1)

    def units(self, problem: Problem) -> int:
        """One per matrix."""
        return problem.integer("B") * problem.integer("NH")

    def unit_problem(self, problem: Problem) -> Problem:
        """One matrix."""
        return problem.replace(B=1, NH=1)

    def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:
        """Slices (1, 1, T, T_kv)."""
        b, head = divmod(index, problem.integer("NH"))
        return {name: array[b : b + 1, head : head + 1] for name, array in arrays.items()}


class Softmax(RowOp):
    """P = softmax(scale·S) row by row."""

    name = "softmax"
    summary = "row softmax of scaled scores: weights from scores"
    error_factor = 2.0

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """scores -> weights."""
        return self._tensor(problem, "scores", "input"), self._tensor(problem, "weights", "output")

    def hard_inputs(self, problem: Problem, seed: int) -> Arrays:
        from autotune.ops.hard_inputs import sharpen_rows

        scores = self.inputs(problem, seed)["scores"]
        return {"scores": sharpen_rows(scores, abs(float(problem["scale"])) or 1.0, seed)}

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        from autotune.ops import softmax_reference as reference

        return {"weights": reference.softmax(inputs["scores"], *self._terms(problem))}

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """float32, P rounded to the dtype."""
        from autotune.ops import softmax_reference as reference

        return {"weights": reference.softmax(inputs["scores"], *self._terms(problem), problem.dtype)}

    def noise(self, problem: Problem, inputs: Arrays) -> dict[str, float]:
        """Scores are rounded in fp32 before they are exponents; a weight changes by a quarter of that at most."""
        import numpy as np

        largest = np.nanmax(np.abs(inputs["scores"].astype(np.float64)), initial=0.0)
        return {"weights": float(2.0**-24 * abs(float(problem["scale"])) * largest)}

    @staticmethod
    def _terms(problem: Problem) -> tuple[float, bool]:
        return float(problem["scale"]), bool(problem["causal"])


class SoftmaxBackward(RowOp):
    """dS = scale·P∘(dP - rowsum(P∘dP)) row by row: the gradient of `softmax`."""

    name = "softmax_backward"
    summary = "gradient of the row softmax: d_scores from weights and d_weights"
    error_factor = 3.0

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """weights, d_weights -> d_scores."""
        inputs = (self._tensor(problem, name, "input") for name in ("weights", "d_weights"))
        return (*inputs, self._tensor(problem, "d_scores", "output"))

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        """Weights of standard normal scores, rounded as stored; standard normal gradients."""
        from autotune.ops import softmax_reference as reference

        arrays = super().inputs(problem, seed)
        weights = reference.softmax(2 * arrays["weights"], 1.0, bool(problem["causal"]), "fp32")
        return {**arrays, "weights": weights.astype(arrays["weights"].dtype)}

    def hard_inputs(self, problem: Problem, seed: int) -> Arrays:
        """Weights of sharp, flat and growing rows; gradients as `inputs` has them."""
        from autotune.ops import softmax_reference as reference
        from autotune.ops.hard_inputs import sharpen_rows

        arrays = super().inputs(problem, seed)
        weights = reference.softmax(sharpen_rows(arrays["weights"], 1.0, seed), 1.0, bool(problem["causal"]), "fp32")
        return {**arrays, "weights": weights.astype(arrays["weights"].dtype)}

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        return {"d_scores": self._gradient(problem, inputs, None)}

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """float32, dS rounded to the dtype."""
        return {"d_scores": self._gradient(problem, inputs, problem.dtype)}

    def noise(self, problem: Problem, inputs: Arrays) -> dict[str, float]:
        """dP - rowsum(P∘dP) cancels where one weight is nearly 1: some fp32 roundings of the largest dP."""
        import numpy as np

        scale, largest = abs(float(problem["scale"])), np.nanmax(np.abs(inputs["d_weights"].astype(np.float64)))
        return {"d_scores": float(4 * epsilon("fp32") * scale * largest)}

    @staticmethod
    def _gradient(problem: Problem, inputs: Arrays, low_precision: str | None) -> Any:
        from autotune.ops import softmax_reference as reference

        scale, causal = float(problem["scale"]), bool(problem["causal"])
        return reference.backward(inputs["weights"], inputs["d_weights"], scale, causal, low_precision)
