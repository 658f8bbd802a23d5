"""What others need is asked of a process of its own, whatever becomes of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run
from autotune.core.errors import UsageError
from autotune.ladder import peers as module
from autotune.ladder.peers import Peers, TorchPeers, choose_peers, no_peers
from autotune.ladder.torch_peers import answer
from autotune.ops.registry import get_op
from autotune.report.ladder import draw, shared_lines, summary_lines, table_columns, table_rows
from tests import torch_double
from tests.ladder.ladder_doubles import PRODUCT, WHOLE, climbed

ATTENTION = get_op("forward").problem(B=1, NH=4, NH_kv=2, T=64, dtype="fp16")


def asked(**request: Any) -> dict[str, Any]:
    return answer(torch_double, {"gpu": 3, "attention": None, "products": {}, **request})


def test_backends_that_take_the_problem_are_timed() -> None:
    assert asked(attention=ATTENTION.to_json())["attention"] == {"cuDNN": 0.25, "efficient": 0.5, "math": 4.0}
    assert torch_double._state["gpu"] == 3
    backward = asked(attention=get_op("backward").problem(B=1, NH=2, T=64).to_json())
    assert backward["attention"] == {"cuDNN": 0.75, "efficient": 1.5, "math": 12.0}
    assert backward["versions"] == {"torch": "9.9", "cudnn": "91900", "cuda": "13.0"}


def test_another_alignment_of_the_mask_is_not_compared() -> None:
    assert asked(attention=ATTENTION.replace(T_kv=65).to_json())["attention"] == {}
    unmasked = ATTENTION.replace(T_kv=65, causal=False)
    assert "cuDNN" in asked(attention=unmasked.to_json())["attention"]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_products(layout: str) -> None:
    op = get_op("matmul")
    single = op.problem(B=2, NH=3, M=4, N=5, K=6, dtype="fp32", layout=layout)
    half = single.replace(dtype="bf16")
    found = asked(products={"single": single.to_json(), "half": half.to_json()})["products"]
    assert found == {"single": {"cuBLAS": 6.0, "cuBLAS tf32": 3.0}, "half": {"cuBLAS": 6.0}}
    assert torch_double.backends.cuda.matmul.allow_tf32 is False


def fake_torch(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A module `torch` with this text, which other processes find first."""
    (folder / "torch.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


def test_the_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    double = Path(torch_double.__file__).read_text()
    known = "\nimport sys as _sys\n_sys.modules['torch.nn'] = nn\n_sys.modules['torch.nn.attention'] = nn.attention\n"
    fake_torch(tmp_path, monkeypatch, double + known)
    with TorchPeers(0)(WHOLE, [PRODUCT, WHOLE]) as get:
        found = get()
    assert found.attention == {"cuDNN": 0.75, "efficient": 1.5, "math": 12.0}
    assert found.products == {PRODUCT.key: {"cuBLAS": 2.0, "cuBLAS tf32": 1.0}}
    assert (found.versions["torch"], found.missing) == ("9.9", "")


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("raise ImportError('no CUDA in this build')", "no CUDA in this build"),
        ("raise SystemExit(3)", "PyTorch gave no answer"),
        ("import time\ntime.sleep(60)", "PyTorch gave no answer"),
    ],
)
def test_a_broken_pytorch_costs_no_climb(
    text: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(tmp_path, monkeypatch, text)
    with TorchPeers(0, limit_s=3.0)(WHOLE, []) as get:
        assert get() == Peers(missing=missing)


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_torch", lambda: True)
    assert choose_peers(None, 1) == choose_peers(True, 1) == TorchPeers(1)
    assert choose_peers(False, 1) is choose_peers(None, None) is no_peers
    monkeypatch.setattr(module, "has_torch", lambda: False)
    assert choose_peers(None, 1) is no_peers
    with pytest.raises(UsageError, match="PyTorch is not installed"):
        choose_peers(True, 1)


def test_on_the_emulator_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ladder", "--peers", "--device", "cpu"]) == 2
    assert "times are estimates here" in capsys.readouterr().err


def test_they_are_shown_beside_the_versions() -> None:
    attention = {"cuDNN": 0.5, "math": 2.0}
    peers = Peers(attention, {PRODUCT.key: {"cuBLAS": 0.125}}, {"torch": "9.9"})
    ladder = replace(climbed().ladder, peers_published={"cuDNN": 0.166})
    found = replace(climbed(), peers=peers, ladder=ladder)
    columns, rows = table_columns(found), list(table_rows(found))
    assert all(len(row) == len(columns) for row in rows)
    assert [row[:6] for row in rows[-2:]] == [
        ["peer", "PyTorch: math", "2", "", "", "4.5"],
        ["peer", "PyTorch: cuDNN", "0.5", "", "", "18"],
    ]
    assert rows[-1][columns.index(">RTX 4090 ms")] == "0.166"
    assert list(shared_lines(found)) == [
        "product (fp32): 0.25 ms, simt THREADS=64; cuBLAS 0.125 ms", "peers: torch 9.9"
    ]  # fmt: skip
    data = found.to_json()
    assert data["peers"]["attention"] == attention
    assert data["published_peers"] == {"cuDNN": 0.166}
    assert "no peers were measured: broken" in list(summary_lines(replace(found, peers=Peers(missing="broken"))))


def test_they_are_plotted_after_the_versions() -> None:
    pytest.importorskip("matplotlib")
    found = replace(climbed(), peers=Peers({"cuDNN": 0.5, "math": 2.0}))
    (axes,) = draw(found).axes
    lines: list[Any] = list(axes.get_lines())
    assert [list(line.get_ydata()) for line in lines] == [[9.0, 3.0, 1.0], [2.0, 0.5], [70.0, 7.0]]
    assert list(lines[1].get_xdata()) == [3, 4]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["V1", "V2", "V4", "math", "cuDNN"]
