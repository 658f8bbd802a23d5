"""Problems of every op on which kernels go wrong when they are wrong; `fitted` to each family."""

from collections.abc import Mapping
from typing import Any

from autotune.core.values import Value
from autotune.ops.awkward import awkward_problems
from autotune.ops.registry import BUILTIN
from tests.kernels.attention_cases import CASES as ATTENTION_CASES

Fields = Mapping[str, Value]


def _product(M: int, N: int, K: int, **fields: Any) -> Fields:
    return {"B": 1, "NH": 2, "M": M, "N": N, "K": K, **fields}


def _rows(T: int, T_kv: int, **fields: Any) -> Fields:
    return {"B": 1, "NH": 2, "T": T, "T_kv": T_kv, **fields}


PRODUCTS: tuple[Fields, ...] = (
    _product(1, 1, 1, layout="tt"),
    _product(113, 203, 64, layout="nt", mask="c_lower", alpha=0.125, dtype="fp32"),
    _product(799, 3, 17, layout="nn", interleaved="c"),
    _product(203, 64, 113, layout="nn", mask="a_lower", dtype="bf16"),
    _product(64, 130, 251, layout="tn", mask="a_upper", interleaved="a", dtype="fp32"),
    _product(136, 72, 200, layout="tn", B=2, alpha=-2.0, interleaved="ac"),
    _product(96, 256, 104, layout="tt", dtype="bf16", interleaved="b"),
    _product(70, 24, 3, layout="nt", mask="c_lower", interleaved="abc", dtype="fp32"),
    _product(50, 70, 64, NH=6, group=3, interleaved="ab", layout="nt", mask="c_lower", alpha=0.125),
    _product(67, 24, 40, B=2, NH=4, group=2, interleaved="bc", layout="nn", mask="a_lower"),
)

TF32_PRODUCTS: tuple[Fields, ...] = tuple(
    {**case, "dtype": "fp32", "arithmetic": "tf32"}
    for case in (
        _product(113, 203, 64, layout="nt", mask="c_lower", alpha=0.125),
        _product(203, 64, 113, layout="nn", mask="a_lower"),
        _product(64, 130, 251, layout="tn", mask="a_upper"),
        _product(96, 256, 104, layout="tt"),
        _product(1, 1, 1, layout="nn"),
    )
)

ROWS: tuple[Fields, ...] = (
    _rows(113, 203, B=2, dtype="fp32"),
    _rows(799, 3, dtype="bf16"),
    _rows(1, 1, causal=False, dtype="fp16"),
    _rows(75, 61, causal=False, dtype="fp32", scale=-0.5),
    _rows(5, 1024, dtype="fp16"),
)

COPIES: tuple[Fields, ...] = (
    {"B": 2, "NH": 3, "T": 37, "HS": 64, "dtype": "fp16"},
    {"B": 1, "NH": 5, "T": 1, "HS": 13, "dtype": "bf16", "source": "bhtd", "target": "bthd"},
    {"B": 2, "NH": 2, "T": 130, "HS": 40, "dtype": "fp32", "source": "bhtd"},
    {"B": 2, "NH": 3, "T": 67, "HS": 24, "dtype": "fp32", "target": "bthd"},
)

_ATTENTION: tuple[Fields, ...] = tuple(case.fields for case in ATTENTION_CASES)
_TABLES: Mapping[str, tuple[Fields, ...]] = {
    "forward": _ATTENTION,
    "backward": _ATTENTION,
    "matmul": PRODUCTS + TF32_PRODUCTS,
    "softmax": ROWS,
    "softmax_backward": ROWS,
    "permute": COPIES,
}
CASES: Mapping[str, tuple[Fields, ...]] = {
    op: _TABLES.get(op) or tuple(problem.fields for problem in awkward_problems(op)) for op in BUILTIN
}
"""By op; of an op that has no table here, what `autotune check` looks at."""

_WHOLE_SPACES: Mapping[str, tuple[Fields, ...]] = {
    "forward": ({"B": 2, "NH": 3, "NH_kv": 1, "T": 53, "T_kv": 203, "HS": 64, "dtype": "bf16"},),
    "backward": tuple(
        {"B": 2, "NH": 3, "NH_kv": 1, "T": 113, "T_kv": 203, "HS": 64, "dtype": dtype} for dtype in ("bf16", "fp32")
    ),
    "matmul": (
        _product(140, 136, 80, layout="nt"),
        _product(140, 136, 80, layout="tn", dtype="fp32", arithmetic="tf32"),
    ),
    "softmax": (_rows(67, 104, NH=1, dtype="bf16"),),
    "softmax_backward": (_rows(67, 104, NH=1, dtype="bf16"),),
    "permute": ({"B": 2, "NH": 3, "T": 67, "HS": 24, "dtype": "fp16"},),
}
WHOLE_SPACES: Mapping[str, tuple[Fields, ...]] = {op: _WHOLE_SPACES.get(op) or CASES[op][2:3] for op in BUILTIN}
"""By op: problems on which every value of every parameter is tried; no length is a multiple of a tile's."""
