"""The ladders as data: every published version, its idea, and which family with which parameters pinned it is.

The backward versions are those of the climb published for llm.c's softmax backward; the times beside them were
published for a whole backward pass with cuBLAS products on an RTX 4090 at B=4, NH=12, T=1024, HS=64, causal, fp32.
"""

from dataclasses import dataclass, field
from typing import Literal

from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.ladder.parts import (
    Part,
    key_product,
    output_product,
    output_product_in_place,
    permute_key,
    permute_query,
    score_product,
    score_product_in_place,
    softmax,
    softmax_backward,
    whole,
)

PUBLISHED_GPU = "RTX 4090"

Element = Literal["asked", "fp32", "16-bit", "32-bit"]
"""The dtype a version computes in: the problem's; fp32 even where 16 bits are asked for; one of them or not at all."""


@dataclass(frozen=True)
class Version:
    """A step of a ladder: the kernel it is about, and the other kernels that its pass needs.

    The time of the pass is `own` plus `shared`, each part as often as it counts.
    """

    name: str
    idea: str
    own: Part
    shared: tuple[Part, ...] = ()
    element: Element = "asked"
    published_ms: float | None = None


@dataclass(frozen=True)
class Ladder:
    """The versions of an op, from the first to the last; `fields` are those of the published problem."""

    op: str
    fields: dict[str, Value]
    versions: tuple[Version, ...]
    reference: str = ""  # what the published figures are of
    note: str = ""
    peers_published: dict[str, float] = field(default_factory=dict)  # milliseconds of others, on the same GPU

    @property
    def published_for(self) -> str:
        """What the published figures are of: problem and GPU."""
        return f"{' '.join(f'{name}={int(value)}' for name, value in self.fields.items())} on an {PUBLISHED_GPU}"

    def reference_for(self, problem: Problem) -> str:
        """What the published figures are of, beside the times of a problem that may be another one."""
        if not self.reference or all(problem[name] == value for name, value in self.fields.items()):
            return self.reference
        return f"{self.reference}; the times above are of another problem"


SMALL: dict[str, Value] = {"B": 1, "NH": 2, "T": 256, "HS": 64}
"""The problem climbed on the emulator where none is given."""

_PRODUCTS_BACKWARD = (
    Part("dP = dO·Vᵀ", score_product),
    Part("dV = Pᵀ·dO, dK = dSᵀ·Q", key_product, count=2),
    Part("dQ = dS·K", output_product),
)
_PERMUTES = (Part("permute Q and O", permute_query, count=2), Part("permute K and V", permute_key, count=2))
_PERMUTES_BACKWARD = (
    Part("permute dO and dQ", permute_query, count=2),
    Part("permute dK and dV", permute_key, count=2),
)


def _gradient(name: str, idea: str, published_ms: float, family: str, **pins: Value | tuple[Value, ...]) -> Version:
    own = Part("softmax backward", softmax_backward, family, pins)
    return Version(name, idea, own, (*_PRODUCTS_BACKWARD, *_PERMUTES_BACKWARD), published_ms=published_ms)


def _fused(name: str, idea: str, family: str, element: Element = "asked") -> Version:
    return Version(name, idea, Part("all", whole, family), (), element)


_BY_THREAD, _BY_WARP = "thread_per_element", "warp_per_element"
_SIMPLE: dict[str, Value | tuple[Value, ...]] = {
    "REVERSE": False,
    "GRID_MAP": ("x=columns,y=rows,z=matrix", "x=columns,y=matrix,z=rows"),
    "LANES": 32,
    "REDUCE": "cooperative_groups",
}
_PLAIN_ROWS: dict[str, Value] = {"ROWS_EACH": 1, "VEC": 1, "LOADS": "cached", "STORES": "cached", "REVERSE": False}

BACKWARD = Ladder(
    "backward",
    {"B": 4, "NH": 12, "T": 1024, "HS": 64, "causal": True},
    (
        _gradient(
            "V1", "a thread a column of dS; rows, heads and batches one after the other", 7067.52, _BY_THREAD,
            THREAD="column", PARALLEL="alone", UNROLL=1, THREADS=64, GRID_MAP="x=threads,y=others,z=matrix",
        ),
        _gradient(
            "V2", "in parallel over t and over batches and heads", 271.53, _BY_THREAD,
            THREAD="column", PARALLEL="matrices", UNROLL=1,
        ),
        _gradient(
            "V3", "a warp an element: lanes share the sum (cooperative groups)", 14.37, _BY_WARP,
            **_SIMPLE, COLUMNS=1, DIAGONAL="compared",
        ),
        _gradient(
            "V4", "unrolled by 8: eight neighbours a warp, what is read serves them all", 10.38, _BY_WARP,
            **_SIMPLE, COLUMNS=8, DIAGONAL="compared",
        ),
        _gradient(
            "V5", "no branch in the loop: it is split at the diagonal", 6.03, _BY_WARP,
            **_SIMPLE, COLUMNS=8, DIAGONAL="split",
        ),
        _gradient("V6", "a block a row: the row in shared memory, tile by tile", 2.99, "block_per_row", REVERSE=False),
        _gradient(
            "V7", "dS = P∘(dP - rowsum(P∘dP)): one sum a row, reduced by a cooperative group", 1.76, "row_sum",
            **_PLAIN_ROWS, REGISTERS=0, LANES=32, REDUCE="cooperative_groups",
        ),
        _gradient(
            "V8", "several rows a block, longest first, streaming reads and writes", 1.76, "row_sum",
            ROWS_EACH=(2, 4), REVERSE=True, LOADS="streaming", STORES="streaming",
        ),
        _fused("F1", "beyond: one fused pass, nothing of size T² in memory", "flash_simt"),
        _fused("F2", "the same on tensor cores", "flash_mma", "16-bit"),
        _fused("F3", "the same on tensor cores in fp32: three tf32 products for one", "flash_tf32x3", "32-bit"),
    ),
    reference=f"the published times: B=4 NH=12 T=1024 HS=64 causal fp32 on an {PUBLISHED_GPU}, the whole backward "
    "pass with cuBLAS products",
    note="V1 to V8: ms is the whole pass, own ms the softmax backward; products and permutes are tuned once for all.",
)  # fmt: skip

_PRODUCTS = (Part("S = Q·Kᵀ", score_product), Part("O = P·V", output_product))
_PRODUCTS_IN_PLACE = (Part("S = Q·Kᵀ", score_product_in_place), Part("O = P·V", output_product_in_place))
_PIECES = (*_PRODUCTS, *_PERMUTES)
_ROWS_BY_BLOCK = Part("softmax", softmax, "block_per_row")
_ROWS_BY_WARP = Part("softmax", softmax, "warp_per_row", {"LANES": 32})


FORWARD = Ladder(
    "forward",
    {"B": 8, "NH": 12, "T": 1024, "HS": 64, "causal": True},
    (
        _fused("V1", "three kernels, a thread a score, a row, an output", "naive", "fp32"),
        _fused("V2", "one kernel: tiles and online softmax, a block a head, a thread a row", "minimal_flash", "fp32"),
        Version("V3", "matrix products around a softmax with a block a row", _ROWS_BY_BLOCK, _PIECES, "fp32"),
        Version("V4", "softmax online with a warp a row, scale fused", _ROWS_BY_WARP, _PIECES, "fp32"),
        Version("V5", "the same in 16 bits: tensor cores, half the bytes", _ROWS_BY_WARP, _PIECES, "16-bit"),
        Version("V6", "no permutes: kernels take strides", _ROWS_BY_WARP, _PRODUCTS_IN_PLACE),
        _fused("V7", "one kernel: a warp a query, shuffles, padded shared memory", "warp_per_query"),
        _fused("V8", "tiles in registers: flash attention with FMAs", "flash_simt"),
        _fused("V9", "the same on tensor cores", "flash_mma", "16-bit"),
        _fused("V10", "the same on tensor cores in fp32: three tf32 products for one", "flash_tf32x3", "32-bit"),
    ),
    reference=f"cuDNN's forward, published for B=8 NH=12 T=1024 HS=64 causal on an {PUBLISHED_GPU}: 0.166 ms",
    peers_published={"cuDNN": 0.166},
    note="V3 to V6: ms is the whole pass, own ms the softmax alone; products and permutes are tuned once for all.",
)

LADDERS = {ladder.op: ladder for ladder in (BACKWARD, FORWARD)}
