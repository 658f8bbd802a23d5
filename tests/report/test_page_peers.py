"""Peers on a page: beside our winner where both were measured, refused where a file has none."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run
from tests.report.databases import hostile
from tests.report.test_page import report, titled

pytest.importorskip("plotly")


def contender(name: str, ms: float | None, **more: Any) -> dict[str, Any]:
    errors = {"out": {"largest": 0.1, "relative": 1e-3}, "lse": {"largest": 0.1, "relative": 2e-3}} if ms else {}
    return {"name": name.lower(), "title": name, "became": "ok", "reason": "", "ms": ms, "call_us": ms and 17.5,
            "rounds": [{"ms": ms}], "errors": errors, **more}  # fmt: skip


PEERS = {
    "environment": {"device": "NVIDIA H200", "driver": "13.0"},
    "versions": {"torch": "2.9"},
    "rows": [
        {
            "problem": {"op": "forward", "T": 256}, "flops": 1e9,
            "contenders": [
                contender("PyTorch cuDNN", 0.8),
                contender("<b>flash</b>", 1.5),
                contender("xFormers", None, became="absent", reason="not installed"),
                contender("hasty", 0.1, became="wrong", reason="out is off by 3"),
                contender("flash 4", float("nan")),
            ],
        },
        {"problem": {"op": "forward", "T": 512}, "contenders": [contender("PyTorch cuDNN", 3.0)]},
    ],
}  # fmt: skip


def test_peers_stand_beside_our_winner(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text(json.dumps(PEERS))
    options = ["--no-examine", "--op", "forward", "--peers", str(tmp_path / "peers.json")]
    found = report(hostile(tmp_path / "a.db"), *options)
    mine, other = titled(found, "Peers")
    assert mine["data"][0]["x"] == [1.5, 1.0, 0.8]
    assert mine["data"][0]["y"][0] == "&lt;b&gt;flash&lt;/b&gt;"
    assert mine["data"][0]["y"][1].startswith("winner here (&lt;img")
    assert other["data"][0]["x"] == [3.0]
    assert "PyTorch cuDNN 0.8 17.5 0.002" in found.text
    assert "xFormers not installed" in found.text
    assert "hasty 0.1 17.5 0.002 WRONG out is off by 3" in found.text
    assert "flash 4 17.5 0.002 no time" in found.text
    assert "op=forward T=512" in found.text
    (tmp_path / "peers.json").write_text(json.dumps({**PEERS, "environment": {"device": "NVIDIA A100"}}))
    elsewhere = report(hostile(tmp_path / "c.db"), *options)
    assert [figure["data"][0]["x"] for figure in titled(elsewhere, "Peers")] == [[1.5, 0.8], [3.0]]
    (tmp_path / "peers.json").write_text(json.dumps(PEERS))
    # Measured times do not stand beside estimates.
    estimated = report(hostile(tmp_path / "b.db", measured=False), *options)
    assert next(titled(estimated, "Peers"))["data"][0]["x"] == [1.5, 0.8]


@pytest.mark.parametrize(
    "data",
    [
        [{"name": "a", "ms": 2.0}],
        {"results": [{"backend": "a", "median_ms": 2.0}]},
        {"problem": {"op": "forward"}, "peers": {"a": 2.0}},
        [{"problem": {"T": 256}, "rows": [{"peer": "a", "ms": 2}]}],
    ],
)
def test_peers_in_other_forms(data: Any, tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text(json.dumps(data))
    found = report(
        hostile(tmp_path / "a.db"), "--no-examine", "--op", "forward", "--peers", str(tmp_path / "peers.json")
    )
    (figure,) = titled(found, "Peers")
    assert sorted(figure["data"][0]["x"]) == [1.0, 2.0]


@pytest.mark.parametrize("text", ["{", "[]", '[{"name": "a"}]', '[{"ms": 1}]'])
def test_what_has_no_peers_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "peers.json").write_text(text)
    database = hostile(tmp_path / "a.db")
    assert (
        run(["report", "-o", str(tmp_path / "a.html"), "--db", str(database), "--peers", str(tmp_path / "peers.json")])
        == 2
    )
    assert "--peers" in capsys.readouterr().err
