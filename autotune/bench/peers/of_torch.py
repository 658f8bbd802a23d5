"""PyTorch's own backends of `scaled_dot_product_attention`, each pinned."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from autotune.bench.torch_peer import Attend, TorchPeer, top_left
from autotune.bench.torch_timing import quiet, versions
from autotune.core.problem import Problem

MATH_LENGTH = 8192
MATH_BYTES = 20e9
"""`math` keeps whole score matrices: it is left out from this length on, and where one in fp32 has more bytes."""


class SdpaPeer(TorchPeer):
    """One backend."""

    def __init__(self, name: str, title: str, backend: str, torch: Any = None) -> None:
        """`backend`: its name in `torch.nn.attention.SDPBackend`; `torch`: the module, by default the one installed."""
        self.name, self.title, self._backend, self._torch = name, title, backend, torch

    @property
    def torch(self) -> Any:
        return self._torch or import_module("torch")

    def why_not(self, problem: Problem) -> str | None:
        if top_left(problem):
            return "PyTorch aligns the causal mask top-left where T differs from T_kv"
        if self.name == "math" and takes_too_much(problem):
            return f"it keeps whole score matrices: left out from T_kv={MATH_LENGTH} and {MATH_BYTES / 1e9:.0f} GB on"
        return None

    def attend(self, problem: Problem) -> Attend:
        attention = self.torch.nn.functional.scaled_dot_product_attention
        causal, grouped = bool(problem["causal"]), problem["NH"] != problem["NH_kv"]
        return lambda q, k, v: attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    @contextmanager
    def within(self) -> Iterator[None]:
        """The backend is pinned, which costs more than a call, and is said not to be warned of."""
        sdp = self.torch.nn.attention if self._torch else import_module("torch.nn.attention")
        with quiet(), sdp.sdpa_kernel([getattr(sdp.SDPBackend, self._backend)]):
            yield

    def versions(self) -> Mapping[str, str]:
        return versions(self.torch)


def takes_too_much(problem: Problem) -> bool:
    """Whether score matrices as a whole take too much memory or time."""
    scores = 4.0 * problem.integer("B") * problem.integer("NH") * problem.integer("T") * problem.integer("T_kv")
    return problem.integer("T_kv") >= MATH_LENGTH or scores > MATH_BYTES


def backends(torch: Any = None) -> tuple[SdpaPeer, ...]:
    """All of them; `torch`: as for `SdpaPeer`."""
    return (
        SdpaPeer("flash", "PyTorch flash", "FLASH_ATTENTION", torch),
        SdpaPeer("cudnn", "PyTorch cuDNN", "CUDNN_ATTENTION", torch),
        SdpaPeer("efficient", "PyTorch efficient", "EFFICIENT_ATTENTION", torch),
        SdpaPeer("math", "PyTorch math", "MATH", torch),
    )
