"""Peers: who is absent says why, who is here is called in its own words; what a GPU would time is timed by doubles."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.bench import torch_lab, torch_peer
from autotune.bench.peers import PEERS, chosen_peers
from autotune.bench.peers.of_flash_attn import FlashAttn
from autotune.bench.peers.of_flash_attn_4 import FlashAttn4
from autotune.bench.peers.of_torch import backends
from autotune.bench.peers.of_xformers import XFormers
from autotune.bench.torch_lab import TorchLab, open_lab
from autotune.bench.torch_peer import PackagePeer
from autotune.bench.torch_timing import Tensors, call_us, time_call
from autotune.core.errors import DeviceMissing, LaunchError, UsageError
from autotune.devices.protocol import TimingBudget
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests import torch_double

FORWARD = get_op("forward").problem(B=1, NH=4, T=64, HS=64)
PACKAGES = (FlashAttn, FlashAttn4, XFormers)


def install(folder: Path, name: str, text: str, version: str | None = "7.8", distribution: str | None = None) -> None:
    """A package that holds this text, and says its version if it has one."""
    package = folder.joinpath(*name.split("."))
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(text)
    if version is not None:
        info = folder / f"{(distribution or name).replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution or name}\nVersion: {version}\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where packages are imported from first; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    for name in [name for name in before if name.partition(".")[0] in {"flash_attn", "xformers"}]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in {"flash_attn", "xformers"}]:
        del sys.modules[name]


def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages are not installed, whatever this machine has."""

    def none(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(torch_peer, "import_module", none)
    monkeypatch.setattr(torch_peer, "installed", lambda package: None)


def test_all_peers_have_names_of_their_own() -> None:
    assert [peer.name for peer in PEERS] == ["flash", "cudnn", "efficient", "math", "flash_attn", "flash4", "xformers"]
    assert len({peer.title for peer in PEERS}) == 7
    assert chosen_peers(None) == PEERS
    assert [peer.name for peer in chosen_peers("math,flash")] == ["flash", "math"]
    with pytest.raises(UsageError, match="there is no peer ''"):
        chosen_peers("flash,")


def test_packages_that_are_not_installed_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch)
    assert [peer().why_absent() for peer in PACKAGES] == [
        "flash-attn is not installed", "flash-attn-4 is not installed", "xformers is not installed",
    ]  # fmt: skip
    assert [dict(peer().versions()) for peer in PACKAGES] == [{}] * 3


def test_a_package_inside_another_ones_is_not_taken_for_it(folder: Path) -> None:
    """flash-attn-4 lies in the folder of flash-attn."""
    install(folder, "flash_attn", "", None)
    install(folder, "flash_attn.cute", "def flash_attn_func(): pass\n", "4.0", "flash-attn-4")
    assert FlashAttn().why_absent() == "flash-attn is not installed"
    assert FlashAttn4().why_absent() is None
    assert FlashAttn4().versions() == {"flash-attn-4": "4.0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise ImportError('libcudart.so.11: cannot open shared object file\\nmore')", "libcudart.so.11: cannot open"),
        ("raise RuntimeError()", "RuntimeError"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("other = 1", "module 'flash_attn' has no attribute 'flash_attn_func'"),
    ],
)
def test_a_package_that_cannot_be_imported_says_why(text: str, said: str, folder: Path) -> None:
    install(folder, "flash_attn", text, "2.8", "flash-attn")
    reason = FlashAttn().why_absent()
    assert reason is not None
    assert reason.startswith(f"flash-attn 2.8 cannot be imported: {said}")
    assert "\n" not in reason


class Rows:
    """A tensor of which the order of its axes is followed, and what is done to it."""

    def __init__(self, *axes: str) -> None:
        self.axes = axes

    def transpose(self, one: int, two: int) -> "Rows":
        axes = list(self.axes)
        axes[one], axes[two] = axes[two], axes[one]
        return Rows(*axes)

    def unflatten(self, axis: int, sizes: tuple[int, int]) -> "Rows":
        return Rows(*self.axes[:axis], f"NH_kv={sizes[0]}", f"group={sizes[1]}", *self.axes[axis + 1 :])

    def unsqueeze(self, axis: int) -> "Rows":
        return Rows(*self.axes[:axis], "1", *self.axes[axis:])

    def expand(self, *sizes: int) -> "Rows":
        return Rows(*(axis if size == -1 else f"group={size}" for axis, size in zip(self.axes, sizes, strict=True)))

    def flatten(self, first: int, last: int) -> "Rows":
        return Rows(*self.axes[:first], "NH", *self.axes[last + 1 :])


Q, K = Rows("B", "NH", "T", "HS"), Rows("B", "NH_kv=2", "T", "HS")


@pytest.mark.parametrize("peer", [FlashAttn(), FlashAttn4()])
@pytest.mark.parametrize("pair", [False, True])
def test_flash_attn_takes_rows_before_heads(peer: PackagePeer, pair: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def attention(q: Rows, k: Rows, v: Rows, causal: bool) -> Any:
        seen.append((q.axes, k.axes, v.axes, causal))
        return (q, "lse") if pair and peer.name == "flash4" else q

    monkeypatch.setattr(type(peer), "imported", SimpleNamespace(flash_attn_func=attention))
    out = peer.call(FORWARD, Tensors(Q, K, K, None))()
    assert seen == [(("B", "T", "NH", "HS"), ("B", "T", "NH_kv=2", "HS"), ("B", "T", "NH_kv=2", "HS"), True)]
    assert out.axes == Q.axes


def test_xformers_has_an_axis_for_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def attention(q: Rows, k: Rows, v: Rows, attn_bias: Any) -> Rows:
        seen.append((q.axes, k.axes, v.axes, attn_bias))
        return q

    bias = SimpleNamespace(LowerTriangularFromBottomRightMask=lambda: "lower right")
    ops = SimpleNamespace(memory_efficient_attention=attention, fmha=SimpleNamespace(attn_bias=bias))
    monkeypatch.setattr(XFormers, "imported", ops)
    grouped = FORWARD.replace(NH_kv=2)
    assert XFormers().call(grouped, Tensors(Q, K, K, None))().axes == Q.axes
    assert XFormers().call(FORWARD.replace(causal=False), Tensors(Q, Q, Q, None))().axes == Q.axes
    keys = ("B", "T", "NH_kv=2", "group=2", "HS")
    assert seen == [(keys, keys, keys, "lower right"), (("B", "T", "NH", "HS"),) * 3 + (None,)]


def test_who_computes_what() -> None:
    def reasons(**changes: Any) -> dict[str, str | None]:
        return {peer.name: peer.why_not(FORWARD.replace(**changes)) for peer in PEERS}

    assert set(reasons().values()) == {None}
    assert {name for name, why in reasons(dtype="fp32").items() if why} == {"flash_attn", "flash4"}
    assert {name for name, why in reasons(HS=512).items() if why} == {"flash_attn"}
    top_left = {"flash", "cudnn", "efficient", "math"}
    assert {name for name, why in reasons(T_kv=128).items() if why} == top_left
    assert {name for name, why in reasons(T_kv=128, causal=False).items() if why} == set()
    assert {name for name, why in reasons(T=8192, T_kv=8192).items() if why} == {"math"}
    assert {name for name, why in reasons(B=64, NH=32, T=4096, T_kv=4096).items() if why} == {"math"}
    why = reasons(T=8192, T_kv=8192)["math"]
    assert why == "it keeps whole score matrices: left out from T_kv=8192 and 20 GB on"


# --- with a double of PyTorch, whose kernels take times of their own


def test_backends_are_pinned_around_calls() -> None:
    flash, cudnn, efficient, _ = backends(torch_double)
    lab = TorchLab(torch_double, gpu("h200"), 2)
    assert torch_double._state["gpu"] == 2
    budget = TimingBudget(min_repeats=3, max_repeats=3)
    for op, factor in (("forward", 1.0), ("backward", 3.0)):
        problem = get_op(op).problem(**FORWARD.fields)
        tensors = lab.tensors(problem)
        for peer, ms in ((cudnn, 0.25), (efficient, 0.5)):
            with peer.within():
                timing = lab.kernel(peer.call(problem, tensors), budget)
            assert (timing.median_ms, timing.repeats) == (factor * ms, 3)
        with flash.within(), pytest.raises(RuntimeError, match="no kernel"):
            flash.call(problem, tensors)()
    assert cudnn.versions() == {"torch": "9.9", "cudnn": "91900", "cuda": "13.0"}


def test_layouts_of_tensors() -> None:
    grouped = get_op("backward").problem(B=1, NH=4, NH_kv=2, T=64, T_kv=32, HS=16, causal=False)
    tensors = Tensors.of(torch_double, grouped)
    assert [t.shape for t in (tensors.q, tensors.k, tensors.v, tensors.dout)] == [
        (1, 4, 64, 16), (1, 2, 32, 16), (1, 2, 32, 16), (1, 4, 64, 16),
    ]  # fmt: skip
    assert Tensors.of(torch_double, FORWARD).dout is None


def test_a_call_that_takes_no_time_is_no_time() -> None:
    with pytest.raises(LaunchError, match=r"0\.0 ms"):
        time_call(torch_double, lambda: None, TimingBudget())


def test_the_hosts_time_ends_before_the_gpus() -> None:
    said: list[str] = []
    times = iter([10.0, 10.5])
    took = call_us(lambda: said.append("call"), 4, lambda: said.append("wait"), lambda: next(times))
    assert took == 0.5 / 4 * 1e6
    assert said == ["wait", "call", "call", "call", "call", "wait"]


# --- where there is nothing to compare on


def test_a_gpu_and_a_pytorch_that_uses_it_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = gpu("h200")
    monkeypatch.delenv("AUTOTUNE_DEVICE", raising=False)
    monkeypatch.setattr(torch_lab, "present_gpu", lambda index: here if index == 0 else None)

    def without(name: str) -> Any:
        raise ImportError("No module named 'torch'")

    monkeypatch.setattr(torch_lab, "import_module", without)
    refusals = {
        "cuda:1": "no NVIDIA GPU 1 here",
        "a100": "no a100 here: the GPU is an NVIDIA H200",
        "cpu": "there is nothing to compare on cpu",
        "h200": r"peers need PyTorch, which cannot be imported \(No module named 'torch'\): pip install",
    }
    for device, said in refusals.items():
        with pytest.raises(DeviceMissing, match=said) as caught:
            open_lab(device)
        assert caught.value.exit_code == 4
    cuda = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setattr(torch_lab, "import_module", lambda name: SimpleNamespace(cuda=cuda, __version__="2.9+cpu"))
    with pytest.raises(DeviceMissing, match=r"PyTorch 2\.9\+cpu cannot use the GPU"):
        open_lab(None)
    monkeypatch.setenv("AUTOTUNE_DEVICE", "cpu")
    with pytest.raises(DeviceMissing, match="nothing to compare on cpu"):
        open_lab(None)


def test_the_lab_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_lab, "driver_release", lambda: None)
    monkeypatch.setattr(torch_lab, "driver_version", lambda: "13.0")
    said = TorchLab(torch_double, gpu("h200")).environment()
    assert {**said, "host": ""} == {"device": "NVIDIA H200", "driver": "unknown", "cuda": "13.0", "host": ""}
