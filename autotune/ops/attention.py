"""The attention ops `forward` and `backward`.

Logical shapes are always (B, NH, T, HS); `layout` says how that lies in memory:
`bthd` (B,T,NH,HS), `bhtd` (B,NH,T,HS), `packed` (B,T,NH+2·NH_kv,HS) with Q, K and V in one buffer,
which for NH_kv = NH is the (B,T,3,NH,HS) of a fused projection. V, out and their gradients have HS_v columns in place
of HS; a packed row then has (NH+NH_kv)·HS + NH_kv·HS_v elements.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autotune.core.arithmetic import ARITHMETICS, FULL
from autotune.core.dtypes import DTYPES, OPERAND_DTYPES
from autotune.core.plan import Role, TensorSpec
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.ops.inputs import normal_ones
from autotune.ops.op import LONGEST, Arrays, Field, Op, Rule, contiguous

if TYPE_CHECKING:
    from autotune.ops.row_bounds import RowScale

LAYOUTS = ("bthd", "bhtd", "packed")

FIELDS = (
    Field("B", "int", 4, help="batch size"),
    Field("NH", "int", 12, help="query heads"),
    Field("NH_kv", "int", default_from="NH", help="key and value heads (grouped-query attention); default NH"),
    Field("T", "int", 1024, help="query length", maximum=LONGEST),
    Field("T_kv", "int", default_from="T", help="key length; default T", maximum=LONGEST),
    Field("HS", "int", 64, help="head size", maximum=4096),
    Field("HS_v", "int", default_from="HS", help="head size of V and out; default HS", maximum=4096, implied=True),
    Field("dtype", "choice", "fp16", choices=OPERAND_DTYPES, help="element type"),
    Field("causal", "bool", True, help="mask keys after the query: query i sees keys up to i + T_kv - T"),
    Field("layout", "choice", "bthd", choices=LAYOUTS, help="order of dimensions in memory"),
)

_OF_VALUES = frozenset({"v", "dv", "out", "dout"})
"""Tensors whose heads have HS_v columns."""

_EMULATED_FLOPS = 1.5e9
"""What the emulator executes in about a second."""

_PATIENCE = 8
"""How many times that it may take before telling shares of batches and heads are given up."""

TILE_WIDTH = 32
"""Tiles of heads are as wide as the next multiple."""

_SIZE_STEP = 8  # head sizes that families on tensor cores take as they are

_FEW_PAIRS = 64
"""Of queries and keys: gradients of so few are all computed again in no time."""

_SHARES = ((2, 2, 3), (2, 2, 2), (1, 2, 2), (1, 1, 2), (1, 1, 1))
"""Batches, key heads and query heads a key head that are kept. With two of each, wrong strides and wrong maps from
query to key heads show; batches go first, because heads are mapped in more ways."""


class Attention(Op):
    """What `forward` and `backward` share."""

    fields = FIELDS
    exact_fields = ("HS", "HS_v", "dtype", "causal", "layout")
    has_hard_inputs = True
    positive = ("scale",)

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """NH divisible by NH_kv; packed needs as many keys as queries."""
        grouped = Rule("NH", "divisible", "NH_kv", "every key head serves NH/NH_kv query heads")
        one_length = Rule("T_kv", "equal", "T", "layout=packed keeps Q, K and V in one buffer")
        return (grouped, one_length) if problem["layout"] == "packed" else (grouped,)

    def akin(self, problem: Problem) -> tuple[Problem, ...]:
        """Head sizes whose tiles are as wide: those between the same multiples of `TILE_WIDTH`, the nearest first."""
        if problem.says("HS_v"):
            return problem.unsaid()
        HS = problem.integer("HS")
        widest = -(-HS // TILE_WIDTH) * TILE_WIDTH
        sizes = range(widest, widest - TILE_WIDTH, -_SIZE_STEP)
        nearest = sorted((size for size in sizes if size != HS), key=lambda size: abs(size - HS))
        return tuple(problem.replace(HS=size) for size in nearest)

    def scalars(self, problem: Problem) -> dict[str, float]:
        """`scale` = 1/sqrt(HS), as the float that kernels get: where scores are large, its rounding shows."""
        (scale,) = struct.unpack("f", struct.pack("f", 1.0 / math.sqrt(problem.integer("HS"))))
        return {"scale": scale}

    def arithmetics(self, problem: Problem) -> tuple[str, ...]:
        """In fp32, all there are."""
        return tuple(ARITHMETICS) if problem.dtype == "fp32" else (FULL,)

    def laid_out_otherwise(self, problem: Problem) -> Problem | None:
        """Rows right behind one another: families that want them at multiples of 16 bytes take no odd HS then."""
        return problem.replace(layout="bhtd") if problem["layout"] != "bhtd" else None

    def low_precision(self, problem: Problem, inputs: Arrays) -> Arrays:
        """float32 accumulation, what is summed over rounded to the dtype."""
        return self.approximate(problem, inputs, FULL)

    def emulated(self, problem: Problem) -> Problem:
        """Fewer batches and heads, whole sequences; two key heads and grouped queries as long as that is bearable."""
        shares = [self._share(problem, *share) for share in self._shares(problem)]
        cheap = (share for share in shares if self.flops(share) <= _EMULATED_FLOPS and self._tells(problem, share))
        bearable = (share for share in reversed(shares) if self._tells(problem, share))
        least = (next(bearable), *shares[-2:])
        patient = (share for share in least if self.flops(share) <= _PATIENCE * _EMULATED_FLOPS)
        return next(cheap, None) or next(patient, shares[-1])

    def smaller(self, problem: Problem) -> Iterator[Problem]:
        """Other shares after the one that is executed as a rule, then whole groups of query heads."""
        yield self.emulated(problem)
        shares = [self._share(problem, *share) for share in self._shares(problem)]
        yield from sorted(shares, key=lambda share: not self._tells(problem, share))
        group = problem.integer("NH") // problem.integer("NH_kv")
        for heads in (min(2, problem.integer("NH_kv")), 1):
            yield problem.replace(B=1, NH_kv=heads, NH=heads * group)
        yield problem

    def _shares(self, problem: Problem) -> tuple[tuple[int, int, int], ...]:
        """Those that are tried, without heads that shift rows where all of the problem's begin alike.

        With some numbers of heads, 16-bit rows of an odd HS are multiples of 16 bytes apart, and kernels may want it.
        """
        alike = 8 // math.gcd(8, *(problem.integer(name) for name in ("HS", "HS_v")))  # heads
        apart = problem["layout"] == "bhtd" or DTYPES[problem.dtype].size != 2 or problem.integer("NH_kv") % alike
        if alike == 1 or apart:
            return _SHARES
        return tuple((b, alike, g) for b, g in ((2, 3), (2, 2), (1, 2), (1, 1)))

    def _share(self, problem: Problem, b: int, kv: int, g: int) -> Problem:
        group = problem.integer("NH") // problem.integer("NH_kv")
        heads = min(kv, problem.integer("NH_kv"))
        # A part of the group, where there is one: kernels may want groups that divide their tiles.
        kept = next((part for part in range(min(g, group), 1, -1) if group % part == 0), min(g, group))
        return problem.replace(B=min(b, problem.integer("B")), NH_kv=heads, NH=heads * kept)

    def _tells(self, problem: Problem, share: Problem) -> bool:
        """Whether a share still has two key heads, and two query heads for each, where the problem has them."""
        grouped = problem["NH"] != problem["NH_kv"]
        return share.integer("NH_kv") >= min(2, problem.integer("NH_kv")) and (
            not grouped or share["NH"] != share["NH_kv"]
        )

    def units(self, problem: Problem) -> int:
        """One per batch and key head."""
        return problem.integer("B") * problem.integer("NH_kv")

    def unit_problem(self, problem: Problem) -> Problem:
        """One key head with the query heads it serves."""
        return problem.replace(B=1, NH=problem.integer("NH") // problem.integer("NH_kv"), NH_kv=1)

    def unit(self, problem: Problem, arrays: Arrays, index: int) -> Arrays:
        """Slices (1, group, …) of query-side arrays and (1, 1, …) of key-side ones."""
        NH, NH_kv = problem.integer("NH"), problem.integer("NH_kv")
        b, head = divmod(index, NH_kv)
        group = NH // NH_kv
        sides = {name: 1 if name in ("k", "v", "dk", "dv") else group for name in arrays}
        return {n: a[b : b + 1, head * sides[n] : (head + 1) * sides[n]] for n, a in arrays.items()}

    def tiled_flops(self, problem: Problem, config: Config) -> float:
        """With queries in tiles of BLOCK_M, those of a group of heads together with PACK_HEADS, and keys of BLOCK_N.

        Of a causal tile on the diagonal all pairs are computed.
        """
        return self.flops(problem.replace(T=1, T_kv=1, causal=False)) * self._tiled(problem, config)[-1]

    def heaviest(self, problem: Problem, config: Config) -> float:
        """The last queries see all keys."""
        rows, keys, pairs = self._tiled(problem, config)
        return rows * keys / pairs if problem["causal"] else 1.0

    def unmasked(self, problem: Problem, config: Config) -> float:
        """Of pairs of a query and a key."""
        rows, keys, pairs = self._tiled(problem, config)
        return pairs / (rows * keys)

    def _tiled(self, problem: Problem, config: Config) -> tuple[float, int, float]:
        """Queries and keys in whole tiles, and the pairs of them that are computed; of one head."""
        T, T_kv = problem.integer("T"), problem.integer("T_kv")
        tiles = (config.get("BLOCK_M"), config.get("BLOCK_N"))
        BLOCK_M, BLOCK_N = (tile if isinstance(tile, int) and tile > 0 else 1 for tile in tiles)
        together = problem.integer("NH") // problem.integer("NH_kv") if config.get("PACK_HEADS") else 1
        rows = -(-T * together // BLOCK_M) * BLOCK_M / together
        keys = -(-T_kv // BLOCK_N) * BLOCK_N
        hidden = 0.0
        if problem["causal"]:
            under = max(0.0, min(T, T_kv) - (BLOCK_M / together + BLOCK_N) / 2)
            hidden = under * under / 2 + max(0, T - T_kv) * T_kv
        return rows, keys, max(rows * keys - hidden, 1.0)

    def _hidden(self, inputs: Arrays, rows: Mapping[str, slice], seed: int | None) -> Arrays:
        """NaN in these rows, of all columns, or of one by the seed: an end or a middle, odd or even.

        Without a seed every second head has none in its keys, so that those of the values show.
        """
        hidden = {name: array.copy() for name, array in inputs.items()}
        for name, hides in rows.items():
            width = inputs[name].shape[-1]
            ends = (0, width - 1, width // 2, width // 2 - 1)
            columns = slice(None) if seed is None else slice(ends[seed % 4], ends[seed % 4] + 1)
            hidden[name][:, :: 2 if name == "k" else 1, hides, columns] = math.nan
        return hidden

    def _pairs(self, problem: Problem) -> float:
        """(query, key) pairs in all heads by the field's convention: T·T_kv, halved when causal."""
        pairs = problem.integer("B") * problem.integer("NH") * problem.integer("T") * problem.integer("T_kv")
        return pairs / 2 if problem["causal"] else float(pairs)


def _qkv(problem: Problem, role: Role, prefix: str = "") -> tuple[TensorSpec, ...]:
    """Q, K and V (or their gradients) as the layout places them."""
    NH, NH_kv, HS, HS_v = (problem.integer(name) for name in ("NH", "NH_kv", "HS", "HS_v"))
    if problem["layout"] != "packed":
        return tuple(_tensor(problem, prefix + name, name == "q", role) for name in ("q", "k", "v"))
    B, T, dtype, row = problem.integer("B"), problem.integer("T"), problem.dtype, (NH + NH_kv) * HS + NH_kv * HS_v
    places = (("q", NH, HS, 0), ("k", NH_kv, HS, NH * HS), ("v", NH_kv, HS_v, (NH + NH_kv) * HS))
    return tuple(
        TensorSpec(prefix + name, (B, heads, T, size), (T * row, size, row, 1), dtype, role, f"{prefix}qkv", offset)
        for name, heads, size, offset in places
    )


def _tensor(problem: Problem, name: str, query_side: bool, role: Role) -> TensorSpec:
    B, HS = problem.integer("B"), problem.integer("HS_v" if name in _OF_VALUES else "HS")
    heads, length = (problem.integer(n) for n in (("NH", "T") if query_side else ("NH_kv", "T_kv")))
    by_head = (heads * length * HS, length * HS, HS, 1)
    by_row = (length * heads * HS, HS, heads * HS, 1)
    strides = by_head if problem["layout"] == "bhtd" else by_row
    return TensorSpec(name, (B, heads, length, HS), strides, problem.dtype, role, name)


def _lse(problem: Problem, role: Role) -> TensorSpec:
    shape = (problem.integer("B"), problem.integer("NH"), problem.integer("T"))
    return TensorSpec("lse", shape, contiguous(shape), "fp32", role, "lse")


class Forward(Attention):
    """O = softmax(scale·QKᵀ)·V and the natural log-sum-exp of every row."""

    name = "forward"
    summary = "attention forward: out and log-sum-exp from q, k, v"
    error_factor = 2.0

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """q, k, v -> out, lse."""
        out = _tensor(problem, "out", True, "output")
        return (*_qkv(problem, "input"), out, _lse(problem, "output"))

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        """Standard normal q, k, v."""
        return normal_ones(_qkv(problem, "input"), seed)

    def hard_inputs(self, problem: Problem, seed: int) -> Arrays:
        from autotune.ops.hard_inputs import sharpen

        return sharpen(self.inputs(problem, seed), seed)

    def row_scales(self, problem: Problem, inputs: Arrays) -> "Mapping[str, RowScale]":
        from autotune.ops.attention_rows import forward_rows

        return forward_rows(inputs, bool(problem["causal"]), self.scalars(problem)["scale"], problem.dtype)

    def hide(self, problem: Problem, inputs: Arrays, seed: int | None = None) -> Arrays:
        """When causal NaN in queries without a key, and in the last key and value, which the last query alone sees,
        unless it is the only one; in one column with a seed. Without a mask, with a seed, NaN in the first query, and
        a score beyond what fp32 holds well in the last."""
        from autotune.ops.hard_inputs import overshoot

        if not problem["causal"]:
            first = int(problem.integer("T") > 1)
            return inputs if seed is None else self._hidden(overshoot(inputs), {"q": slice(0, first)}, seed)
        first = max(0, problem.integer("T") - problem.integer("T_kv"))
        last = slice(-1, None) if problem.integer("T") - first > 1 else slice(0, 0)
        return self._hidden(inputs, {"q": slice(0, first), "k": last, "v": last}, seed)

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        """float64, row blocks."""
        from autotune.ops import attention_reference as reference

        return reference.forward(inputs, bool(problem["causal"]), self.scalars(problem)["scale"])

    def approximate(self, problem: Problem, inputs: Arrays, arithmetic: str) -> Arrays:
        """float32 accumulation, P and O rounded to the dtype."""
        from autotune.ops import attention_reference as reference

        scale = self.scalars(problem)["scale"]
        return reference.forward(inputs, bool(problem["causal"]), scale, problem.dtype, arithmetic)

    def flops(self, problem: Problem) -> float:
        """Two matrix products."""
        return 2.0 * self._pairs(problem) * (problem.integer("HS") + problem.integer("HS_v"))


class Backward(Attention):
    """dQ, dK, dV from dO, with O and the log-sum-exp saved by the forward pass."""

    name = "backward"
    summary = "attention backward: dq, dk, dv from q, k, v, out, lse, dout"
    error_factor = 3.0

    def tensors(self, problem: Problem) -> tuple[TensorSpec, ...]:
        """q, k, v, out, lse, dout -> dq, dk, dv."""
        saved = (_tensor(problem, "out", True, "input"), _lse(problem, "input"))
        dout = _tensor(problem, "dout", True, "input")
        return (*_qkv(problem, "input"), *saved, dout, *_qkv(problem, "output", "d"))

    def inputs(self, problem: Problem, seed: int) -> Arrays:
        """Standard normal q, k, v, dout; out and lse from a float32 forward pass, rounded as stored."""
        return self._saved(problem, self._normal(problem, seed))

    def hard_inputs(self, problem: Problem, seed: int) -> Arrays:
        from autotune.ops.hard_inputs import sharpen

        return self._saved(problem, sharpen(self._normal(problem, seed), seed))

    def _normal(self, problem: Problem, seed: int) -> Arrays:
        return normal_ones((*_qkv(problem, "input"), _tensor(problem, "dout", True, "input")), seed)

    def _saved(self, problem: Problem, arrays: Arrays) -> Arrays:
        """With what the forward pass saves."""
        import numpy as np

        from autotune.ops import attention_reference as reference

        scale = self.scalars(problem)["scale"]
        forward = reference.forward(arrays, bool(problem["causal"]), scale, low_precision="fp32")
        out = forward["out"].astype(arrays["q"].dtype)
        return {**arrays, "out": out, "lse": forward["lse"].astype(np.float32)}

    def row_scales(self, problem: Problem, inputs: Arrays) -> "Mapping[str, RowScale]":
        from autotune.ops.attention_rows import backward_rows

        return backward_rows(inputs, bool(problem["causal"]), self.scalars(problem)["scale"], problem.dtype)

    def hide(self, problem: Problem, inputs: Arrays, seed: int | None = None) -> Arrays:
        """When causal NaN in queries without a key, in the last key and value, which the last query alone sees, and in
        the first query that sees a key, which sees the fewest; in one column with a seed. Without a mask, with a seed,
        a score beyond what fp32 holds well, where few gradients are computed again for it."""
        from autotune.ops.hard_inputs import overshoot

        T, T_kv = problem.integer("T"), problem.integer("T_kv")
        if not problem["causal"]:
            return inputs if seed is None or T * T_kv > _FEW_PAIRS else self._saved(problem, overshoot(inputs))
        first, last = max(0, T - T_kv), slice(-1, None)
        rows = {"q": slice(0, first + 1), "k": last, "v": last, "dout": slice(0, first), "out": slice(0, first)}
        return self._hidden(inputs, rows, seed)

    def reference(self, problem: Problem, inputs: Arrays) -> Arrays:
        """float64, row blocks."""
        from autotune.ops import attention_reference as reference

        return reference.backward(inputs, bool(problem["causal"]), self.scalars(problem)["scale"])

    def approximate(self, problem: Problem, inputs: Arrays, arithmetic: str) -> Arrays:
        """float32 accumulation, P and dS rounded to the dtype."""
        from autotune.ops import attention_reference as reference

        scale = self.scalars(problem)["scale"]
        return reference.backward(inputs, bool(problem["causal"]), scale, problem.dtype, arithmetic)

    def heaviest(self, problem: Problem, config: Config) -> float:
        """The first keys are seen by all queries that see any."""
        rows, keys, pairs = self._tiled(problem, config)
        return max(1.0, min(rows, keys) * keys / pairs if problem["causal"] else 1.0)

    def flops(self, problem: Problem) -> float:
        """Five matrix products: S, dQ and dK over HS, dP and dV over HS_v; 2.5 times forward where these are equal."""
        return 2.0 * self._pairs(problem) * (3 * problem.integer("HS") + 2 * problem.integer("HS_v"))
