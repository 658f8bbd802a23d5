"""How a comparison is shown: the table, JSON, comma-separated values and the plot, with their values."""

import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.bench import ours, torch_lab
from autotune.bench import peers as registry
from autotune.bench.compare import compare
from autotune.bench.contender import Contender
from autotune.bench.measured import Row
from autotune.cli import bench as command
from autotune.cli.main import run
from autotune.core.problem import Problem
from autotune.report import bench
from autotune.report.table import table_lines
from tests.bench.bench_doubles import BACKWARD, FORWARD, Fake, FakeLab, missing


def contenders(lab: FakeLab, **ours: Any) -> list[Contender]:
    return [
        Fake(lab, "autotune", 0.5, us=8.0, **ours), Fake(lab, "cudnn", 0.625, us=20.0),
        Fake(lab, "flash", 0.25, off=0.5), Fake(lab, "math", 0.1, takes="fp32"),
        Fake(lab, "xformers", 1.0, absent="xformers is not installed"),
        Fake(lab, "flash4", 1.0, raises=ValueError("HS=64?")),
    ]  # fmt: skip


def rows_of(*lengths: int, problem: Problem = FORWARD) -> list[Row]:
    lab = FakeLab()
    problems = [problem.replace(T=T, T_kv=T) for T in lengths]
    return [compare(one, contenders(lab), lab, rounds=2) for one in problems]


def test_the_table() -> None:
    rows = rows_of(512, 1024)
    assert bench.table_columns(rows) == [">T", *bench.COLUMNS]
    wrong = "WRONG: out is off by 0.5 (||got - exact|| / ||exact||); 0.005 is allowed"
    cells = list(bench.table_rows(rows))
    assert cells == [
        ["512", "autotune", "0.5", "1.5", "0.134", "1.00", "8.0", "0.0", "0.0e+00", "0.0e+00", "exact, flash_mma"],
        ["512", "Cudnn", "0.625", "1.5", "0.107", "1.25", "20.0", "0.0", "0.0e+00", "0.0e+00", ""],
        ["512", "Flash", "0.25", "1.5", "0.268", "", "5.0", "0.0", "5.0e-01", "5.0e-01", wrong],
        ["512", "Math", *[""] * 8, "not computed: it takes fp32"],
        ["512", "Flash4", *[""] * 8, "failed: HS=64?"],
        ["1024", "autotune", "0.5", "1.5", "0.537", "1.00", "8.0", "0.0", "0.0e+00", "0.0e+00", "exact, flash_mma"],
        ["1024", "Cudnn", "0.625", "1.5", "0.429", "1.25", "20.0", "0.0", "0.0e+00", "0.0e+00", ""],
        ["1024", "Flash", "0.25", "1.5", "1.07", "", "5.0", "0.0", "5.0e-01", "5.0e-01", wrong],
        ["1024", "Math", *[""] * 8, "not computed: it takes fp32"],
        ["1024", "Flash4", *[""] * 8, "failed: HS=64?"],
    ]  # fmt: skip
    heading = next(table_lines(bench.table_columns(rows), cells))
    assert " ".join(heading.split()) == "T by ms ±% TFLOP/s / ours call µs call ±% rel. error max error remark"


def test_what_is_said_around_it() -> None:
    rows = rows_of(512, 1024)
    assert list(bench.heading_lines(rows, FakeLab().environment(), {"torch": "9.9"})) == [
        "forward B=1 NH=2 NH_kv=2 HS=64 dtype=fp16 causal=1 layout=bthd on a double",
        "driver 580.1, cuda 13.0, torch 9.9",
    ]
    assert list(bench.absent_lines(rows)) == ["absent: Xformers (xformers): xformers is not installed"]
    said = list(bench.legend_lines(rows))
    assert said[-1] == "ours is the fastest of those that are right on 2 of 2 problems"
    lab = FakeLab(checked=1)
    part = [compare(FORWARD.replace(T=T, T_kv=T), contenders(lab), lab, 1) for T in (512, 1024)]
    assert "T=1024: 1 of 2 (batch, key head) slices were compared with float64" in list(bench.legend_lines(part))
    single = [compare(FORWARD, contenders(lab), lab, 1)]
    assert list(bench.legend_lines(single))[-1] == "1 of 2 (batch, key head) slices were compared with float64"
    assert bench.table_columns(single) == list(bench.COLUMNS)
    assert next(bench.table_rows(single))[5:7] == ["8.0", ""]  # of one round nobody knows the spread
    assert bench.progress_line(rows[0]) == "autotune 0.5, Cudnn 0.625, Flash 0.25 WRONG"
    assert bench.progress_line(compare(FORWARD, [Fake(lab, "autotune", takes="fp32")], lab)) == "nothing was timed"


def test_fields_of_keys_that_are_others_are_shown() -> None:
    lab = FakeLab()
    pairs = [(512, 512), (512, 1024)]
    rows = [compare(FORWARD.replace(T=T, T_kv=T_kv), contenders(lab), lab, 1) for T, T_kv in pairs]
    assert bench.table_columns(rows)[0] == ">T_kv"
    assert [cells[0] for cells in bench.table_rows(rows)] == ["512"] * 5 + ["1024"] * 5


def test_json() -> None:
    (row,) = rows_of(512, problem=BACKWARD)
    data = json.loads(json.dumps(row.to_json()))
    assert data.keys() == {"problem", "flops", "checked", "slices", "contenders"}
    assert (data["problem"]["op"], data["problem"]["T"], data["checked"], data["slices"]) == ("backward", 512, 2, 2)
    flops = 10 * 2 * 512 * 512 * 64 / 2
    assert data["flops"] == flops
    ours, cudnn, flash, math, xformers, flash4 = data["contenders"]
    assert ours == {
        "name": "autotune", "title": "autotune", "became": "ok", "reason": "", "ms": 0.5, "low_ms": 0.495,
        "high_ms": 0.51, "call_us": 8.0, "low_call_us": 8.0, "high_call_us": 8.0,
        "rounds": [{"ms": 0.5, "q1_ms": 0.495, "q3_ms": 0.51, "repeats": 7, "call_us": 8.0}] * 2,
        "errors": {name: {"largest": 0.0, "relative": 0.0} for name in ("dq", "dk", "dv")},
        "answer": "exact", "template": "flash_mma", "config": {"A": 1}, "tflops": flops / 0.5 / 1e9, "over_ours": 1.0,
    }  # fmt: skip
    assert (cudnn["over_ours"], cudnn["tflops"]) == (1.25, flops / 0.625 / 1e9)
    assert (flash["became"], flash["ms"], flash["over_ours"]) == ("wrong", 0.25, None)
    assert flash["errors"]["dq"] == {"largest": 0.5, "relative": 0.5}
    for one, became, reason in (
        (math, "unsupported", "it takes fp32"), (xformers, "absent", "xformers is not installed"),
        (flash4, "failed", "HS=64?"),
    ):  # fmt: skip
        assert (one["became"], one["reason"], one["ms"], one["call_us"]) == (became, reason, None, None)
        assert (one["rounds"], one["errors"], one["tflops"], one["over_ours"]) == ([], {}, None, None)


def test_the_plot_has_a_panel_a_combination_and_a_line_a_contender() -> None:
    pytest.importorskip("matplotlib")
    lab = FakeLab()
    problems = [FORWARD.replace(T=T, T_kv=T, causal=causal) for T in (512, 2048) for causal in (True, False)]
    rows = [compare(problem, contenders(lab), lab, 1) for problem in problems]
    figure = bench.draw(rows, "a title")
    panels: list[Any] = figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == ["causal=1", "causal=0"]
    for axes, factor in zip(panels, (1, 2), strict=True):
        lines = [container.lines[0] for container in axes.containers]
        flops = [factor * 4 * 2 * T * T * 64 / 2 for T in (512, 2048)]
        assert [container.get_label() for container in axes.containers] == ["autotune", "Cudnn"]  # none that is wrong
        assert [list(line.get_xdata()) for line in lines] == [[512, 2048]] * 2
        assert list(lines[0].get_ydata()) == pytest.approx([count / 0.5 / 1e9 for count in flops])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["512", "2048"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["autotune", "Cudnn"]


def test_titles_and_legends_lie_within_the_plot() -> None:
    """One panel, a problem of many fields, and as many peers as there are."""
    pytest.importorskip("matplotlib")
    lab = FakeLab()
    row = compare(FORWARD, contenders(lab), lab, 1)
    many = [replace(row.entries[0], title=f"PyTorch efficient {number}") for number in range(8)]
    figure: Any = bench.draw([replace(row, entries=(*row.entries, *many))], f"{FORWARD} on NVIDIA H200")
    figure.savefig(io.BytesIO(), format="png")  # lays it out
    box = figure.bbox
    texts = [figure._suptitle, *figure.legends[0].get_texts()]
    assert len(texts) == 11
    for text in texts:
        extent = text.get_window_extent()
        assert box.x0 <= extent.x0 < extent.x1 <= box.x1, text.get_text()
        assert box.y0 <= extent.y0 < extent.y1 <= box.y1, text.get_text()


def test_more_panels_than_fit_and_a_plot_of_nothing() -> None:
    pytest.importorskip("matplotlib")
    lab = FakeLab()
    rows = [compare(FORWARD.replace(B=B), contenders(lab), lab, 1) for B in (1, 2, 3, 4)]
    visible = [axes.get_visible() for axes in bench.draw(rows, "a title").axes]
    assert visible == [True] * 4 + [False] * 2
    nothing = [compare(FORWARD, [Fake(lab, "autotune", 1.0, takes="fp32")], lab)]
    assert not bench.draw(nothing, "a title").legends


# --- the command


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    """Whom the command compares: ours, and peers that are doubles, on a lab that is one."""
    made = FakeLab()
    monkeypatch.setattr(torch_lab, "open_lab", lambda device, seed: made)
    monkeypatch.setattr(command, "_compared", compared(made))
    monkeypatch.setattr(registry, "PEERS", tuple(contenders(made)[1:]))
    return made


def compared(lab: FakeLab, most: int | None = None, **ours: Any) -> Any:
    def stand_in(problems: Any, given: Any, peers: Any, rounds: int, db: Any, *, full_precision: bool) -> list[Row]:
        assert given is lab
        sys.stdout.write("what libraries print")
        mine, *_ = contenders(lab, **ours)
        return [compare(problem, [mine, *peers], lab, rounds) for problem in problems[:most]]

    return stand_in


SWEEP = ["bench", "--op", "forward", "--B", "1", "--NH", "2", "--T", "512,1024"]


def test_the_command_prints_a_table(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SWEEP, "--rounds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "forward B=1 NH=2 NH_kv=2 HS=64 dtype=fp16 causal=1 layout=bthd on a double"
    assert lines[3].split()[:3] == ["T", "by", "ms"]
    assert "absent: Xformers (xformers): xformers is not installed" in lines
    assert lab.log.count("autotune") == 4


def test_only_those_named_are_compared(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SWEEP, "--against", "math, cudnn", "--rounds", "1", "--json"]) == 0
    (row, _) = json.loads(capsys.readouterr().out)["rows"]
    assert [one["name"] for one in row["contenders"]] == ["autotune", "cudnn", "math"]


def test_the_command_prints_json_and_draws(lab: FakeLab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("plot.svg", "plot.png"):
        assert run([*SWEEP, "--json", "--plot", str(tmp_path / name)]) == 0
        data = json.loads(capsys.readouterr().out)
    assert data["environment"]["driver"] == "580.1"
    assert data["versions"] == {"cudnn": "1.0", "flash": "1.0", "math": "1.0", "flash4": "1.0"}
    assert [row["problem"]["T"] for row in data["rows"]] == [512, 1024]
    assert len(data["rows"][0]["contenders"][0]["rounds"]) == 5
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


def test_the_command_prints_comma_separated_values(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SWEEP, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 12
    ours, cudnn, flash, _, xformers, _ = rows[6:]
    assert (ours["op"], ours["T"], ours["name"], ours["ms"], ours["call_us"]) == (
        "forward", "1024", "autotune", "0.5", "8.0",
    )  # fmt: skip
    assert (ours["rounds"], ours["largest_error.out"], ours["config"]) == ("5", "0.0", "A=1")
    assert (cudnn["over_ours"], cudnn["became"], cudnn["checked"], cudnn["slices"]) == ("1.25", "ok", "2", "2")
    assert (flash["became"], flash["relative_error.out"], flash["over_ours"]) == ("wrong", "0.5", "")
    assert (xformers["ms"], xformers["reason"]) == ("", "xformers is not installed")


def test_errors_that_are_no_numbers_are_json(lab: FakeLab, capsys: pytest.CaptureFixture[str]) -> None:
    registry.PEERS[0]._off = float("nan")  # type: ignore[attr-defined]
    assert run([*SWEEP, "--json"]) == 0
    wrong = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["rows"][0]["contenders"][1]
    assert (wrong["became"], wrong["errors"]["out"]["relative"]) == ("wrong", {"$float": "inf"})


def test_the_page_names_all_peers() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    names = re.search(r"`--against` \| Only these peers, comma-separated: (.*?) \[default", text)
    assert names is not None
    assert re.sub(r" \(.*\)", "", names[1]).split(", ") == [peer.name for peer in registry.PEERS]


@pytest.mark.parametrize(
    ("ours", "code"),
    [({"off": 1.0}, 1), ({"raises": ValueError("no")}, 1), ({"takes": "fp32"}, 3), ({}, 0)],
    ids=["wrong", "failed", "none", "right"],
)
def test_exit_codes(ours: dict[str, Any], code: int, lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_compared", compared(lab, **ours))
    assert run(SWEEP) == code


def test_fewer_rows_than_problems_were_interrupted(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_compared", compared(lab, most=1))
    assert run(SWEEP) == 130


def test_quick_searches_beforehand(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.answers import tuned
    from autotune.core.errors import NoFeasibleConfiguration

    asked: list[Any] = []

    def tune(look: Any, way: str, **searched: Any) -> None:
        asked.append((way, searched["T"], searched["device"], searched["db"], look()))
        raise NoFeasibleConfiguration("nothing is right")

    monkeypatch.setattr(tuned, "found_or_tuned", tune)
    monkeypatch.setattr(ours, "look_up", lambda spec, db, full_precision: lambda problem: problem["T"])
    lab.spec, lab.index = "a spec", 1  # type: ignore[attr-defined]
    assert run([*SWEEP, "--quick", "--db", "mine.db"]) == 0
    assert asked == [("quick", T, "cuda:1", "mine.db", T) for T in (512, 1024)]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--op", "matmul"], 2, "others compute attention alone: --op 'matmul' is not one of forward, backward"),
        (["--csv", "--json"], 2, "--csv and --json are two forms of one table"),
        (["--against", "flash,triton"], 2, "there is no peer 'triton'; there are flash, cudnn, efficient, math"),
        (["--plot", "x.gif"], 2, "must end in one of .png, .svg, .pdf"),
        (["--T", "0"], 2, "T"),
        (["--device", "cpu"], 4, "there is nothing to compare on cpu: kernels and peers are timed on a GPU"),
        (["--device", "cpu:h200"], 4, "there is nothing to compare on cpu:h200"),
    ],
)
def test_what_is_refused(
    options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["bench", *options]) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_requests_are_read_before_a_gpu_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_lab, "open_lab", missing)
    assert run(["bench", "--op", "permute"]) == 2
    assert run(["bench"]) == 4
