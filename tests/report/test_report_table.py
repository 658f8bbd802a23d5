"""Tables as text: nothing at the end of lines, folded only where they must be narrower, never cut."""

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


def test_the_last_column_goes_below_where_little_room_is_left() -> None:
    assert list(table_lines(COLUMNS, ROWS, 45)) == [
        "#  family     ms  GB/s",
        "    configuration",
        "1  tiled     0.5  1200",
        "    BLOCK_M=64 BLOCK_N=128 WARPS=4",
        "2  naive   12.25",
        "    THREADS=256",
    ]


def test_folded_beside_the_others_where_there_is_room() -> None:
    rows = [[1, "BLOCK_M=64 BLOCK_N=128 WARPS=4 STAGES=2 UNROLL=4 SMEM_PAD=8"], [2, "X=1"]]
    assert list(table_lines(["#", "~configuration"], rows, 50)) == [
        "#  configuration",
        "1  BLOCK_M=64 BLOCK_N=128 WARPS=4 STAGES=2",
        "   UNROLL=4 SMEM_PAD=8",
        "2  X=1",
    ]


def test_left_out_where_folding_is_not_enough() -> None:
    assert list(table_lines(COLUMNS, ROWS, 20)) == [
        "#  family     ms",
        "    configuration",
        "1  tiled     0.5",
        "    BLOCK_M=64",
        "    BLOCK_N=128",
        "    WARPS=4",
        "2  naive   12.25",
        "    THREADS=256",
    ]


def test_all_that_folds_at_the_end_goes_below() -> None:
    columns, rows = [">id", ">ms", "kind", "~problem", "~configuration"], [[7, 0.5, "estimated", "T=64", "M=1 N=2"]]
    assert list(table_lines(columns, rows, 30)) == [
        "id   ms  kind",
        "    problem",
        "    configuration",
        " 7  0.5  estimated",
        "    T=64",
        "    M=1 N=2",
    ]


def test_a_column_in_the_middle_folds() -> None:
    rows = [["forward B=4 NH=12 T=1024", 3, "ok"]]
    assert list(table_lines(["~problem", ">trials", "outcomes"], rows, 36)) == [
        "problem             trials  outcomes",
        "forward B=4 NH=12        3  ok",
        "T=1024",
    ]


@pytest.mark.parametrize("width", range(1, 70))
def test_nothing_is_lost_at_any_width(width: int) -> None:
    lines = list(table_lines(COLUMNS, ROWS, width))
    assert all(line == line.rstrip() for line in lines)
    words = [word for line in lines for word in line.split()]
    for text in (*(word for row in ROWS for word in str(row[4]).split()), "tiled", "12.25", "configuration"):
        assert text in words
    assert max(map(len, lines)) <= max(width, len("2  naive   12.25"), 20)


def test_the_last_column_is_folded_without_a_mark() -> None:
    rows = [["x", "a" * 50]]
    assert list(table_lines(["name", "text"], rows, 46)) == [
        "name  text", "x     " + "a" * 40, "      " + "a" * 10
    ]  # fmt: skip
    assert list(table_lines(["name", ">text"], rows, 24))[1].endswith("a" * 50)


def test_without_rows_and_with_line_breaks() -> None:
    assert list(table_lines(["a", ">b"], [])) == ["a  b"]
    assert list(table_lines(["a"], [["x\n  y"]])) == ["a", "x y"]
    assert [column_name(name) for name in COLUMNS] == ["#", "family", "ms", "GB/s", "configuration"]
