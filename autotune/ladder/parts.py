"""The kernels that a version of attention is made of, each as a problem of the op that computes it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.narrow import Pins
from autotune.ops.registry import get_op

Derive = Callable[[Problem], Problem]
"""From the problem of the whole ladder to that of a part."""


@dataclass(frozen=True)
class Part:
    """A kernel (or pipeline of kernels) that a version launches `count` times.

    `family`: one family of the op, with these parameters pinned; without it, the op's families compete.
    """

    name: str
    problem: Derive
    family: str | None = None
    pins: Pins = field(default_factory=dict)
    count: int = 1


def whole(asked: Problem) -> Problem:
    """All of it: the op itself."""
    return asked


def softmax(asked: Problem) -> Problem:
    """P from S."""
    return _rows("softmax", asked)


def softmax_backward(asked: Problem) -> Problem:
    """dS from P and dP."""
    return _rows("softmax_backward", asked)


def score_product(asked: Problem) -> Problem:
    """S = Q·Kᵀ, and likewise dP = dO·Vᵀ."""
    return _product(asked, asked["T"], asked["T_kv"], asked["HS"], "nt", "c_lower")


def score_product_in_place(asked: Problem) -> Problem:
    """The same from Q and K as they lie in memory, (B,T,NH,HS)."""
    return score_product(asked).replace(interleaved="ab")


def output_product(asked: Problem) -> Problem:
    """O = P·V, and likewise dQ = dS·K."""
    return _product(asked, asked["T"], asked["HS"], asked["T_kv"], "nn", "a_lower")


def output_product_in_place(asked: Problem) -> Problem:
    """The same with V and O as they lie in memory, (B,T,NH,HS)."""
    return output_product(asked).replace(interleaved="bc")


def key_product(asked: Problem) -> Problem:
    """dV = Pᵀ·dO, and likewise dK = dSᵀ·Q.

    Where query heads share a key head the sum runs over the rows of all of them, one matrix below the other, in
    which the mask's triangle repeats: such a product takes P, which is 0 there, as a whole.
    """
    group = _group(asked)
    if group == 1:
        return _product(asked, asked["T_kv"], asked["HS"], asked["T"], "tn", "a_upper")
    rows = group * asked.integer("T")
    whole = _product(asked, asked["T_kv"], asked["HS"], rows, "tn", "a_upper")
    return whole.replace(NH=asked["NH_kv"], group=1, mask="none")


def permute_query(asked: Problem) -> Problem:
    """Q from (B,T,NH,HS) to (B,NH,T,HS); O the other way round takes as long."""
    return _permutation(asked, asked["NH"], asked["T"])


def permute_key(asked: Problem) -> Problem:
    """K and V likewise."""
    return _permutation(asked, asked["NH_kv"], asked["T_kv"])


def _group(asked: Problem) -> int:
    """Query heads that share a key head."""
    return asked.integer("NH") // asked.integer("NH_kv")


def _rows(op: str, asked: Problem) -> Problem:
    scale = 1.0 / math.sqrt(asked.integer("HS"))
    same = {name: asked[name] for name in ("B", "NH", "T", "T_kv", "dtype", "causal")}
    return get_op(op).problem(**same, scale=scale)


def _product(asked: Problem, M: Value, N: Value, K: Value, layout: str, mask: str) -> Problem:
    same = {name: asked[name] for name in ("B", "NH", "dtype")}
    triangle = mask if asked["causal"] else "none"
    return get_op("matmul").problem(**same, M=M, N=N, K=K, layout=layout, mask=triangle, group=_group(asked))


def _permutation(asked: Problem, heads: Value, T: Value) -> Problem:
    same = {name: asked[name] for name in ("B", "HS", "dtype")}
    return get_op("permute").problem(**same, NH=heads, T=T)
