"""Tables as text: nothing at the end of lines, cut only where they must be narrower."""

import pytest

from autotune.report.table import column_name, table_lines

COLUMNS = ["#", "family", ">ms", "?>GB/s", "~configuration"]
ROWS = [
    [1, "tiled", 0.5, 1200, "BLOCK_M=64 BLOCK_N=128 WARPS=4"],
    [2, "naive", 12.25, None, "THREADS=256"],
]


def test_as_wide_as_it_takes() -> None:
    assert list(table_lines(COLUMNS, ROWS)) == [
        "#  family     ms  GB/s  configuration",
        "1  tiled     0.5  1200  BLOCK_M=64 BLOCK_N=128 WARPS=4",
        "2  naive   12.25        THREADS=256",
    ]


def test_cut_to_a_width() -> None:
    assert list(table_lines(COLUMNS, ROWS, 45)) == [
        "#  family     ms  GB/s  configuration",
        "1  tiled     0.5  1200  BLOCK_M=64 BLOCK_N=1…",
        "2  naive   12.25        THREADS=256",
    ]


def test_left_out_where_cutting_is_not_enough() -> None:
    assert list(table_lines(COLUMNS, ROWS, 38)) == [
        "#  family     ms  configuration",
        "1  tiled     0.5  BLOCK_M=64 BLOCK_N=…",
        "2  naive   12.25  THREADS=256",
    ]


@pytest.mark.parametrize("width", range(1, 60))
def test_any_width(width: int) -> None:
    lines = list(table_lines(COLUMNS, ROWS, width))
    assert len(lines) == 3
    assert all(line == line.rstrip() for line in lines)
    least = len("2  naive   12.25  BLOCK_M=64 BLOC…")
    assert max(map(len, lines)) <= max(width, least)


def test_the_last_column_is_cut_without_a_mark() -> None:
    rows = [["x", "a" * 30]]
    assert list(table_lines(["name", "text"], rows, 24)) == ["name  text", "x     " + "a" * 17 + "…"]
    assert list(table_lines(["name", ">text"], rows, 24))[1].endswith("a" * 30)


def test_without_rows_and_with_line_breaks() -> None:
    assert list(table_lines(["a", ">b"], [])) == ["a  b"]
    assert list(table_lines(["a"], [["x\n  y"]])) == ["a", "x y"]
    assert [column_name(name) for name in COLUMNS] == ["#", "family", "ms", "GB/s", "configuration"]
