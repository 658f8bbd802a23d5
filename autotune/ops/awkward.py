"""Problems on which kernels go wrong when they go wrong: lengths that divide no tile, rows without a key, one query."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from autotune.core.dtypes import OPERAND_DTYPES
from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.ops.op import Op
from autotune.ops.registry import get_op

Fields = Mapping[str, Any]

_LENGTHS = ((1, 70), (113, 203), (799, 3), (239, 1), (203, 113), (65, 65), (257, 385), (1023, 1024))


_NO_LENGTHS: Mapping[str, int] = MappingProxyType({})
SIZES = (64, 128, 32, 96, 40, 256)
_VALUE_SIZES = ((192, 128), (40, 96), (128, 64))  # of queries and keys, and of values


def _attention() -> Iterator[Fields]:
    layouts = ("bthd", "bhtd", "packed")
    for i, (T, T_kv) in enumerate(_LENGTHS):
        heads = {"B": 1 + i % 2, "NH": (2, 3, 6)[i % 3], "NH_kv": (2, 1, 2)[i % 3]}
        if T * T_kv > 10**5:
            heads = {"B": 1, "NH": 1, "NH_kv": 1}
        for causal in (True, False):
            layout = layouts[i % 3] if T_kv == T else layouts[i % 2]
            kind = {
                "dtype": OPERAND_DTYPES[(i + causal) % 3],
                "layout": layout,
                "HS": SIZES[(i + 2 * causal) % len(SIZES)],
            }
            yield {**heads, **kind, "T": T, "T_kv": T_kv, "causal": causal}
    for i, (HS, HS_v) in enumerate(_VALUE_SIZES):
        heads = {"B": 1, "NH": 2, "NH_kv": 1 + i % 2}
        kind = {"dtype": OPERAND_DTYPES[i % 3], "layout": layouts[i % 3], "HS": HS, "HS_v": HS_v}
        yield {**heads, **kind, "T": 65, "T_kv": 65 if i % 3 == 2 else 113, "causal": i % 2 == 0}
    # Rows that begin anywhere, but multiples of 16 bytes apart.
    for HS, HS_v, dtype in ((75, 75, "fp16"), (33, 50, "bf16")):
        yield {**_EIGHT_HEADS[0], "HS": HS, "HS_v": HS_v, "dtype": dtype, "layout": "bthd", "T": 65, "T_kv": 113}


def _products() -> Iterator[Fields]:
    sizes = ((1, 1, 1), (113, 203, 64), (799, 3, 17), (203, 64, 113), (64, 130, 251), (136, 72, 200), (96, 256, 104))
    masks = ("none", "c_lower", "none", "a_lower", "a_upper", "none", "none")
    layouts = ("tt", "nt", "nn", "nn", "tn", "tn", "tt")
    kinds = ({"dtype": "fp16"}, {"dtype": "bf16"}, {"dtype": "fp32"}, {"dtype": "fp32", "arithmetic": "tf32"})
    for i, ((M, N, K), mask, layout) in enumerate(zip(sizes, masks, layouts, strict=True)):
        placed = {"group": 2, "interleaved": "ab"} if i % 3 == 1 else {"interleaved": "bc"} if i % 3 == 2 else {}
        for kind in kinds:
            yield {"B": 1 + i % 2, "NH": 2, "M": M, "N": N, "K": K, "mask": mask, "layout": layout, **placed, **kind}


def _rows() -> Iterator[Fields]:
    for i, (T, T_kv) in enumerate(_LENGTHS):
        for causal in (True, False):
            dtype = OPERAND_DTYPES[(i + causal) % 3]
            heads = 1 if T * T_kv > 10**5 else 2
            yield {"B": 1, "NH": heads, "T": T, "T_kv": T_kv, "causal": causal, "dtype": dtype}


def _any(op: Op) -> Iterator[Fields]:
    """For an op that has no table here: small odd values of its numbers, the choices of its other fields in turn."""
    for i in range(16):
        given: dict[str, Any] = {}
        for j, field in enumerate(op.fields):
            if field.kind == "int":
                few = field.name in {"B", "NH", "NH_kv"}
                given[field.name] = (1, 2, 1, 2)[i % 4] if few else _NUMBERS[(i + 3 * j) % len(_NUMBERS)]
            elif field.kind == "choice":
                given[field.name] = field.choices[(i + j) % len(field.choices)]
            elif field.kind == "bool":
                given[field.name] = bool((i + j) % 2)
        yield given


_NUMBERS = (1, 70, 113, 64, 239, 3, 96, 130)
_TABLES = {
    "forward": _attention, "backward": _attention, "matmul": _products, "softmax": _rows, "softmax_backward": _rows,
}  # fmt: skip


def awkward_problems(op: str) -> tuple[Problem, ...]:
    """For a built-in op, without those that its rules exclude. Choices that its table leaves open vary, too."""
    found = []
    known = get_op(op)
    for i, fields in enumerate(_TABLES[op]() if op in _TABLES else _any(known)):
        for given in ({**fields, **_left_open(known, fields, i)}, fields):
            try:
                found.append(known.problem(**given))
                break
            except ProblemError:
                continue
    return tuple(found)


def second_problems(op: Op, problem: Problem, longer: Mapping[str, int] = _NO_LENGTHS) -> Iterator[Problem]:
    """Other problems that the kernels of one compute too: awkward ones with its `exact_fields`, the more telling first.

    None of a user's op. Of attention: lengths beside tile edges (a last tile of one key, of one query), more keys than
    queries, more queries than keys, so few of both that a stride itself may exceed 2^31 elements, one key, and three
    query heads a key head; then with more batches, then what families that do less compute, too. Of the pieces: several
    batches and heads, and lengths that divide no tile, on either side of one another, then few of each, then one key
    or summand.

    Lengths of several tiles are raised to those of `longer`, by the field: a ring of tiles wraps around there.
    """
    exact = {name: problem[name] for name in op.exact_fields}
    rows: Iterator[Fields] = iter(())
    if op.name in ("forward", "backward"):
        rows = (
            {**lengths, **heads}
            for heads_of, lengths_of in (
                (_SECOND_HEADS, _SECOND_LENGTHS),
                (_GROUPED_HEADS, _SHORT_LENGTHS),
                (_EIGHT_HEADS, _SECOND_LENGTHS),
            )
            for heads in heads_of
            for lengths in lengths_of
        )
    elif op.name in _SECOND_PIECES:
        rows = iter((*_SECOND_PIECES[op.name], *(_TABLES[op.name]() if op.name in _TABLES else ())))
    found = set()
    for fields in rows:
        with suppress(ProblemError):
            other = op.problem(**{**_lengthened(fields, longer), **exact})
            if other not in found:
                found.add(other)
                yield other


def _lengthened(fields: Fields, longer: Mapping[str, int]) -> Fields:
    """With those lengths raised that are of several tiles; in equally long problems both."""
    raised = {
        name: max(value, longer.get(name, 0)) for name, value in fields.items() if name in longer and value >= _SEVERAL
    }
    if raised and "T" in fields and fields["T"] == fields.get("T_kv"):
        raised = dict.fromkeys(("T", "T_kv"), max(raised.values()))
    return {**fields, **raised}


_SEVERAL = 100
_SECOND_LENGTHS = (
    {"T": 131, "T_kv": 257}, {"T": 257, "T_kv": 65}, {"T": 3, "T_kv": 2}, {"T": 2, "T_kv": 1}, {"T": 131, "T_kv": 131},
    {"T": 257, "T_kv": 257}, {"T": 2, "T_kv": 2}, {"T": 1, "T_kv": 1},
)  # fmt: skip
_SECOND_ROWS = (  # several steps of rows that are kept, and of vectors
    {"B": 2, "NH": 3, "T": 259, "T_kv": 200},
    {"B": 2, "NH": 3, "T": 203, "T_kv": 112},
    {"B": 2, "NH": 3, "T": 2, "T_kv": 1032},
    {"B": 2, "NH": 3, "T": 33, "T_kv": 1},
)
_SECOND_PIECES: Mapping[str, tuple[Fields, ...]] = {
    "matmul": (
        {"B": 2, "NH": 4, "M": 137, "N": 200, "K": 72, "group": 2, "interleaved": "ab"},
        {"B": 2, "NH": 4, "M": 203, "N": 72, "K": 137, "group": 1, "interleaved": "c"},
        {"B": 2, "NH": 4, "M": 2, "N": 3, "K": 3},
        {"B": 2, "NH": 2, "M": 3, "N": 2, "K": 1},
    ),
    "softmax": _SECOND_ROWS,
    "softmax_backward": _SECOND_ROWS,
    "permute": ({"B": 2, "NH": 3, "T": 113}, {"B": 3, "NH": 2, "T": 67}, {"B": 2, "NH": 2, "T": 2}),
}
_SECOND_HEADS = (
    {"B": 2, "NH": 6, "NH_kv": 2}, {"B": 9, "NH": 6, "NH_kv": 2}, {"B": 33, "NH": 2, "NH_kv": 1},
    {"B": 2, "NH": 3, "NH_kv": 3},
)  # fmt: skip
_EIGHT_HEADS = ({"B": 2, "NH": 16, "NH_kv": 8},)  # rows of any HS are then whole multiples of 16 bytes apart
_GROUPED_HEADS = (  # two full groups of 8 key heads, and of 32, for kernels whose blocks take heads in groups
    {"B": 8, "NH": 6, "NH_kv": 2}, {"B": 64, "NH": 2, "NH_kv": 1},
)  # fmt: skip
_SHORT_LENGTHS = (  # of several tiles on one side at least: else nothing is grouped
    {"T": 67, "T_kv": 131}, {"T": 257, "T_kv": 65}, {"T": 3, "T_kv": 2}, {"T": 3, "T_kv": 1}, {"T": 257, "T_kv": 67},
    {"T": 257, "T_kv": 131}, {"T": 257, "T_kv": 257},
)  # fmt: skip


def _left_open(op: Op, fields: Fields, i: int) -> dict[str, Any]:
    """Choices and groups that a row of a table does not name: the i-th of each."""
    left = [field for field in op.fields if field.name not in fields]
    found: dict[str, Any] = {
        field.name: field.choices[i % len(field.choices)] for field in left if field.kind == "choice"
    }
    return found | {field.name: (1, 2)[i // 2 % 2] for field in left if field.name == "group"}
