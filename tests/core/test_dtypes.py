"""The table of element types agrees with NumPy, and is the only one."""

import ast
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import autotune
from autotune.core.dtypes import DTYPES, NAN_BYTE, OPERAND_DTYPES, epsilon, numpy_dtype, rounded


@pytest.mark.parametrize("name", DTYPES)
def test_a_row_agrees_with_numpy(name: str) -> None:
    row, dtype = DTYPES[name], numpy_dtype(name)
    assert (row.size, row.array_name) == (dtype.itemsize, dtype.name)
    assert row.typestr == (None if name in ("bf16", "fp8e4m3", "fp8e5m2") else dtype.str)
    if row.epsilon is None:
        assert np.issubdtype(dtype, np.integer)
    else:
        assert row.epsilon == float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
        assert np.isnan(np.full(row.size, NAN_BYTE, np.uint8).view(dtype).astype(np.float64)).all()


def test_operands() -> None:
    assert OPERAND_DTYPES == ("fp16", "bf16", "fp32")


def test_rounding_keeps_the_arrays_own_type() -> None:
    values = np.array([1 + 2.0**-9, 1 + 2.0**-6])
    np.testing.assert_array_equal(rounded(values, "bf16"), [1.0, 1 + 2.0**-6])
    assert rounded(values, "bf16").dtype == np.float64


@pytest.mark.parametrize("name", ["int32", "int8", "fp8"])
def test_no_floating_dtype(name: str) -> None:
    with pytest.raises(ValueError, match="no floating dtype"):
        epsilon(name)


def test_there_is_no_other_table() -> None:
    root = Path(autotune.__file__).parent
    words_of_cpp = {"int", "float", "double", "short", "long long", "unsigned int", "unsigned short"}
    foreign = {
        text for row in DTYPES.values() for text in (row.array_name, row.ctype, row.typestr) if text
    } - words_of_cpp
    foreign -= {row.typestr for row in DTYPES.values() if row.is_whole}  # of records that C++ writes, too
    foreign -= DTYPES.keys()  # some are called there as they are here
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            keys = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Tuple) else []
            listed = {key.value for key in keys if isinstance(key, ast.Constant)} & DTYPES.keys()
            if len(listed) > 1 or (isinstance(node, ast.Constant) and node.value in foreign):
                found.append(path.relative_to(root).as_posix())
    assert set(found) == {"core/dtypes.py"}
