"""What a climb shows: factors, table, JSON, plot."""

import builtins
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run
from autotune.core.errors import UsageError
from autotune.ladder.climbed import least_ms
from autotune.ladder.versions import LADDERS
from autotune.ops.registry import get_op
from autotune.report.ladder import shared_lines, summary_lines, table_columns, table_rows, write_plot
from autotune.report.pictures import check_plot
from tests.ladder.ladder_doubles import GRADIENT, H200, PRODUCT, climbed


def test_a_pass_is_the_own_kernel_and_the_shared_ones_as_often_as_they_count() -> None:
    assert [rung.ms for rung in climbed().rungs] == [9.0, 3.0, None, 1.0]
    assert list(climbed().factors()) == [(None, None), (3.0, 3.0), (None, None), (3.0, 9.0)]


def test_the_roofline_is_that_of_the_own_kernel() -> None:
    rung = climbed().rungs[3]
    nbytes = 4 * 2 * (2 * 64 * 65 // 2 + 64 * 64)
    assert least_ms(GRADIENT, H200) == pytest.approx(nbytes / (H200.bandwidth_gbs * 1e6))
    assert rung.roofline(H200) == pytest.approx(least_ms(GRADIENT, H200) / 0.5)
    large = PRODUCT.replace(M=8192, N=8192, K=8192)
    assert least_ms(large, H200) == pytest.approx(2.0 * 2 * 8192**3 / (H200.fp32_tflops * 1e9))
    assert least_ms(large.replace(dtype="fp16"), H200) == pytest.approx(4.0 * 8192**3 / (H200.tensor_tflops * 1e9))


def test_the_table_has_a_row_a_version() -> None:
    columns, rows = table_columns(climbed()), list(table_rows(climbed()))
    assert columns[:8] == ["version", "idea", ">ms", ">own ms", ">x before", ">x first", ">GB/s", ">roofline"]
    assert columns[8:] == [">RTX 4090 ms", "family", "configuration"]
    assert all(len(row) == len(columns) for row in rows)
    assert rows[0][:7] == ["V1", "idea of V1", "9", "8.5", "", "", "0.1"]
    assert rows[1][4:6] == ["3", "3"]
    assert rows[2] == ["V3", "idea of V3", *["-"] * 6, "", "", "skipped: it does not fit"]
    assert rows[3][2:6] == ["1", "0.5", "3", "9"]
    assert rows[1][8:] == ["7", "row_sum", "THREADS=64"]


def test_without_published_times_there_is_no_column_for_them() -> None:
    found = climbed()
    bare = tuple(replace(rung, version=replace(rung.version, published_ms=None)) for rung in found.rungs)
    columns, rows = table_columns(replace(found, rungs=bare)), list(table_rows(replace(found, rungs=bare)))
    assert not any("4090" in column for column in columns)
    assert all(len(row) == len(columns) for row in rows)


def test_estimates_are_called_estimates() -> None:
    assert ">est. ms" in table_columns(climbed(estimated=True))
    assert any("ESTIMATES for NVIDIA H200" in line for line in summary_lines(climbed(estimated=True)))
    assert climbed(estimated=True).to_json()["kind"] == "estimated"
    assert "estimate" not in " ".join([*summary_lines(climbed()), *table_columns(climbed())]).lower()
    assert climbed().to_json()["kind"] == "measured"


def test_shared_kernels_are_said_once() -> None:
    assert list(shared_lines(climbed())) == ["product (fp32): 0.25 ms, simt THREADS=64"]


def test_json_is_complete_and_plain() -> None:
    data = json.loads(json.dumps(climbed().to_json()))
    assert (data["op"], data["device"], data["published_on"], data["seconds"]) == (
        "backward",
        "h200",
        "RTX 4090",
        12.346,
    )
    assert data["problem"]["T"] == 64
    assert [version["ms"] for version in data["versions"]] == [9.0, 3.0, None, 1.0]
    skipped, last = data["versions"][2:]
    assert (skipped["skipped"], skipped["own"], skipped["roofline"]) == ("it does not fit", None, None)
    assert (last["version"], last["factor_before"], last["factor_first"], last["own_ms"]) == ("V4", 3.0, 9.0, 0.5)
    assert (last["own"]["template"], last["own"]["config"]) == ("row_sum", {"THREADS": 64})
    assert last["shared"] == [
        {"part": "product", "count": 2, "problem": PRODUCT.to_json(), "template": "simt", "config": {"THREADS": 64},
         "ms": 0.25, "trials": 3, "record_id": 7}
    ]  # fmt: skip


def test_plots_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_plot(climbed(), tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    write_plot(climbed(estimated=True), tmp_path / "ladder.svg")
    assert ET.parse(tmp_path / "ladder.svg").getroot().tag.endswith("svg")


def test_a_plot_shows_times_and_published_times() -> None:
    pytest.importorskip("matplotlib")
    from autotune.report.ladder import draw

    (axes,) = draw(climbed(estimated=True)).axes
    lines: list[Any] = list(axes.get_lines())
    own, published = lines
    assert list(own.get_ydata()) == [9.0, 3.0, 1.0]
    assert list(published.get_ydata()) == [70.0, 7.0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["V1", "V2", "V4"]
    assert axes.get_yscale() == "log"
    assert own.get_label() == "estimated for NVIDIA H200"
    assert "on an RTX 4090" in published.get_label()
    assert axes.get_title(loc="left").endswith("\ntimes estimated for NVIDIA H200")
    assert axes.get_ylabel() == "estimated ms, not measured (log scale)"
    assert [note.get_text() for note in axes.texts] == ["9", "3", "1"]


def test_a_plot_of_one_series_says_what_it_shows() -> None:
    pytest.importorskip("matplotlib")
    from autotune.report.ladder import draw

    for estimated, said, unit in (
        (True, "times estimated for NVIDIA H200", "estimated ms, not measured (log scale)"),
        (False, "measured on NVIDIA H200", "ms (log scale)"),
    ):
        found = climbed(estimated=estimated)
        bare = tuple(replace(rung, version=replace(rung.version, published_ms=None)) for rung in found.rungs)
        (axes,) = draw(replace(found, rungs=bare)).axes
        assert len(axes.get_lines()) == 1
        assert (axes.get_title(loc="left").partition("\n")[2], axes.get_ylabel()) == (said, unit)


def test_published_figures_say_for_which_problem() -> None:
    for ladder in LADDERS.values():
        problem = get_op(ladder.op).problem(**ladder.fields)
        assert "T=1024" in ladder.reference_for(problem)
        assert "another problem" not in ladder.reference_for(problem)
        assert ladder.reference_for(problem.replace(T=64)).endswith("; the times above are of another problem")
        assert "T=1024" in ladder.published_for


def test_what_cannot_be_plotted_is_said_before_anything_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ladder", "--plot", str(tmp_path / "ladder.gif"), "--device", "cpu"]) == 2
    assert "must end in one of .png, .svg, .pdf" in capsys.readouterr().err
    with pytest.raises(UsageError, match="there is no folder"):
        check_plot(tmp_path / "nowhere" / "ladder.png")
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run(["ladder", "--plot", str(tmp_path / "ladder.png"), "--device", "cpu"]) == 2
    assert "pip install 'autotune-kernels[plot]'" in capsys.readouterr().err


def test_there_is_no_ladder_of_other_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder", "--op", "softmax"]) == 2
    assert "there is no ladder of 'softmax'; there are backward, forward" in capsys.readouterr().err
