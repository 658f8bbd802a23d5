"""Reading Nsight Compute's table, without Nsight Compute."""

from typing import Any

import pytest

from benchmarks.ncu_compare import _AGREES, _DIFFERS, _PIECES, _counters, _print_kernel, _rows
from benchmarks.ncu_counters import ARITHMETIC, NAMES, counters

PRINTED = """==PROF== Connected to process 17
==PROF== Profiling "scores" - 0: 0%....50%....100% - 1 pass
"ID","Kernel Name","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"
"","","sector","sector"
"0","scores","1,024","0"
"1","output","96","n/a"
"""

LOADS, REDUCTIONS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld", "l1tex__t_sectors_pipe_lsu_mem_global_op_red"


def test_rows_and_counters() -> None:
    rows = list(_rows(PRINTED.splitlines()))
    assert [row["Kernel Name"] for row in rows] == ["scores", "output"]
    # Of atomic sectors one of two metrics is not known.
    assert _counters(rows[0], {LOADS, REDUCTIONS}) == {"load sectors": 1024.0}
    assert _counters(rows[1], {LOADS, REDUCTIONS}) == {"load sectors": 96.0}


def test_arithmetic_is_added_up() -> None:
    assert counters(dict.fromkeys(ARITHMETIC, 10.0)) == {"fp32 operations": 40.0}


def kernel(**counted: int) -> dict[str, Any]:
    return {"kernel": "scores", **dict.fromkeys(NAMES, 0), **{n.replace("_", " "): v for n, v in counted.items()}}


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ({"load sectors": 100.0}, _AGREES),
        ({"load sectors": 104.0, "store sectors": 0.0}, _AGREES),
        ({"load sectors": 94.0}, _DIFFERS),
        ({"load sectors": 25.0, "load bytes": 3200.0}, _PIECES),
        ({"load sectors": 25.0, "load bytes": 6400.0}, _DIFFERS),
        ({"load sectors": 150.0}, _AGREES),  # the 50 of asynchronous copies among them
        ({"load sectors": 100.0, "bank conflicts": 4.0, "shared wavefronts": 1000.0}, _AGREES),  # by chance
        ({"load sectors": 100.0, "bank conflicts": 40.0, "shared wavefronts": 1000.0}, _DIFFERS),
        ({"load sectors": 100.0, "fp32 operations": 40.0}, _AGREES),  # shown, not judged
    ],
)
def test_verdicts(measured: dict[str, float], verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    mine = kernel(load_sectors=100, load_bytes=3200, copy_sectors=50, shared_wavefronts=1000)
    assert _print_kernel("case", mine, measured) == verdict
    said = capsys.readouterr().out
    assert "load sectors" in said
    assert ("load sectors + copies" in said) == (measured["load sectors"] == 150.0)
    assert (" <" in said) == (verdict != _AGREES)


def test_no_table() -> None:
    with pytest.raises(SystemExit, match="ncu printed no table"):
        list(_rows(["==ERROR== nothing"]))
