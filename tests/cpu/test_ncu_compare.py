"""Reading Nsight Compute's table, without Nsight Compute."""

import pytest

from benchmarks.ncu_compare import METRICS, _counters, _print_kernel, _rows

PRINTED = """==PROF== Connected to process 17
==PROF== Profiling "scores" - 0: 0%....50%....100% - 1 pass
"ID","Kernel Name","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"
"","","sector","sector"
"0","scores","1,024","0"
"1","output","96","12"
"""

KNOWN = {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld", "l1tex__t_sectors_pipe_lsu_mem_global_op_red"}


def test_rows_and_counters() -> None:
    rows = list(_rows(PRINTED.splitlines()))
    assert [row["Kernel Name"] for row in rows] == ["scores", "output"]
    assert _counters(rows[0], KNOWN) == {"load sectors": 1024.0, "atomic sectors": 0.0}
    assert _counters(rows[1], KNOWN) == {"load sectors": 96.0, "atomic sectors": 12.0}


@pytest.mark.parametrize(("measured", "agrees"), [(100.0, True), (104.0, True), (94.0, False), (200.0, False)])
def test_agreement_is_within_five_percent(measured: float, agrees: bool, capsys: pytest.CaptureFixture[str]) -> None:
    ours = {"kernel": "scores", **dict.fromkeys((*METRICS, "fp32 operations"), 0), "load sectors": 100}
    assert _print_kernel("case", ours, {"load sectors": measured, "store sectors": 0.0}) is agrees
    assert "load sectors" in capsys.readouterr().out


def test_no_table() -> None:
    with pytest.raises(SystemExit, match="ncu printed no table"):
        list(_rows(["==ERROR== nothing"]))
