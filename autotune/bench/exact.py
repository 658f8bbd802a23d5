"""Attention in float64 with PyTorch, on the GPU, and how far outputs are from it.

The formulas are those of `autotune.ops.attention_reference` (Dao et al., FlashAttention, appendix B), a slice of a
batch entry and a key head at a time, with its query heads. Where all slices would take long, some are computed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.bench.measured import Error
from autotune.bench.torch_timing import Tensors
from autotune.core.problem import Problem
from autotune.ops.registry import get_op

MOST_FLOPS = 5e12
"""Slices are computed as long as they need no more than this in float64, but for two, which always are."""

_NOTHING = 1e-9  # a root mean square that is rounding in float64
_SCORES = 1 << 25  # of a block of rows: a quarter of a GB in float64, and several such blocks at a time


@dataclass(frozen=True)
class Exact:
    """Exact values of some slices by output, shape (slices, heads, T, HS), with the numbers of the slices."""

    values: Mapping[str, Any]
    places: tuple[int, ...]
    slices: int
    NH_kv: int

    @property
    def checked(self) -> int:
        """How many slices there are exact values of."""
        return len(self.places)

    def errors(self, outputs: Mapping[str, Any]) -> dict[str, Error]:
        """Of every output, by name; each of shape (B, heads, T, HS)."""
        return {name: error(self._sliced(outputs[name]), right) for name, right in self.values.items()}

    def _sliced(self, output: Any) -> Any:
        return output.unflatten(1, (self.NH_kv, -1)).flatten(0, 1)[list(self.places)]


def exact(torch: Any, problem: Problem, tensors: Tensors, most_flops: float = MOST_FLOPS) -> Exact:
    """`out`, or `dq`, `dk` and `dv`, in float64.

    Args:
        torch: the module.
        problem: forward or backward; a causal query i sees keys up to i + T_kv - T.
        tensors: its inputs.
        most_flops: bounds how many slices are computed.
    """
    scale = get_op(problem.op).scalars(problem)["scale"]
    slices, NH_kv = problem.integer("B") * problem.integer("NH_kv"), problem.integer("NH_kv")
    flops = get_op(problem.op).flops(problem.replace(causal=False))  # masked products are computed, too
    places = _places(slices, slices if flops <= most_flops else int(slices * most_flops / flops))
    found: dict[str, list[Any]] = {}
    for place in places:
        b, head = divmod(place, NH_kv)
        group = tensors.q.shape[1] // NH_kv
        q, dout = (
            None if t is None else t[b, head * group : (head + 1) * group].double() for t in (tensors.q, tensors.dout)
        )
        k, v = tensors.k[b, head].double(), tensors.v[b, head].double()
        for name, values in _slice(torch, q, k, v, dout, bool(problem["causal"]), scale).items():
            found.setdefault(name, []).append(values)
    return Exact({name: torch.stack(values) for name, values in found.items()}, places, slices, NH_kv)


def error(got: Any, right: Any) -> Error:
    """How far one output is from the exact one of the same shape; infinitely where any element is not finite.

    Where the exact output is 0 but for float64's rounding (gradients of scores that have one key), the relative error
    is the root mean square of the absolute one: inputs are of size 1.
    """
    apart = got.double() - right
    if not bool(apart.isfinite().all()):
        return Error(math.inf, math.inf)
    size, elements = float(right.norm()), math.sqrt(right.numel())
    return Error(float(apart.abs().max()), float(apart.norm()) / (size if size > _NOTHING * elements else elements))


def difference(got: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Largest ||got - other|| / ||other|| over the outputs that both have, in float64; NaN where any element is."""
    ratios = []
    for name in got.keys() & other.keys():
        one, two = got[name].double(), other[name].double()
        ratios.append(float((one - two).norm() / two.norm()))
    return max(ratios, key=lambda ratio: (math.isnan(ratio), ratio))


def _places(slices: int, wanted: int) -> tuple[int, ...]:
    """Numbers of slices, spread evenly from the first to the last; at least two of them."""
    count = min(slices, max(2, wanted))
    return (0,) if count == 1 else tuple(at * (slices - 1) // (count - 1) for at in range(count))


def _slice(torch: Any, q: Any, k: Any, v: Any, dout: Any, causal: bool, scale: float) -> dict[str, Any]:
    """The outputs of one key head, each (heads, length, columns), from q (heads, T, HS) and dout (heads, T, HS_v),
    k (T_kv, HS) and v (T_kv, HS_v)."""
    (heads, T, _), T_kv = q.shape, k.shape[0]
    rows = max(1, _SCORES // (heads * T_kv))
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    out = q.new_zeros((heads, T, v.shape[1]))
    keys = torch.arange(T_kv, device=q.device)
    for first in range(0, T, rows):
        part = slice(first, min(T, first + rows))
        scores = q[:, part] @ k.T * scale
        if causal:
            last = torch.arange(part.start, part.stop, device=q.device) + (T_kv - T)
            scores.masked_fill_(keys > last[:, None], -math.inf)
        p = torch.softmax(scores, dim=-1)
        if causal:
            p[:, last < 0] = 0.0  # queries that see no key
        del scores
        out[:, part] = p @ v
        if dout is not None:
            given = dout[:, part]
            row_sums = (given * out[:, part]).sum(-1, keepdim=True)
            ds = p * (given @ v.T - row_sums)
            dq[:, part] = ds @ k * scale
            dk += _over_heads(ds, q[:, part]) * scale
            dv += _over_heads(p, given)
    return {"out": out} if dout is None else {"dq": dq, "dk": dk[None], "dv": dv[None]}


def _over_heads(left: Any, right: Any) -> Any:
    """Sum over heads of leftᵀ·right: (heads, rows, T_kv) and (heads, rows, HS) give (T_kv, HS)."""
    return left.flatten(0, 1).T @ right.flatten(0, 1)
