"""PyTorch's attention backends, and FlashAttention-4 where it is installed, as calls that can be timed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from autotune.core.measurement import Timing
from autotune.core.problem import Problem
from autotune.devices.protocol import TimingBudget
from autotune.ladder import torch_peers
from autotune.ladder.torch_peers import attention_tensor

Call = Callable[[], Any]

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}

MATH_LENGTH = 8192
MATH_BYTES = 20e9
"""`math` keeps whole score matrices: it is left out from this length on, and where one in fp32 has more bytes."""


@dataclass(frozen=True)
class Tensors:
    """A problem's inputs, standard normal, shape (B, NH, T, HS), in memory as the problem's layout says.

    `dout` is None for a forward problem.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor | None

    @classmethod
    def of(cls, problem: Problem, seed: int = 0) -> "Tensors":
        """New ones on the current GPU."""
        torch.manual_seed(seed)
        query, key = ("NH", "T"), ("NH_kv", "T_kv")
        q, k, v = (attention_tensor(torch, problem, *names) for names in (query, key, key))
        return cls(q, k, v, attention_tensor(torch, problem, *query) if problem.op == "backward" else None)


def wanted(problem: Problem) -> tuple[str, ...]:
    """Peers worth asking: without `math` where it takes too much, with FlashAttention-4 where it is installed."""
    scores = 4.0 * problem.integer("B") * problem.integer("NH") * problem.integer("T") * problem.integer("T_kv")
    too_much = problem.integer("T_kv") >= MATH_LENGTH or scores > MATH_BYTES
    names = [name for name in BACKENDS if not (too_much and name == "math")]
    return (*names, *(("flash4",) if problem.dtype != "fp32" and has_flash4() else ()))


def has_flash4() -> bool:
    """Whether the package flash-attn-4 is installed."""
    return find_spec("flash_attn") is not None and find_spec("flash_attn.cute") is not None


def versions() -> dict[str, str]:
    """What was measured with."""
    return torch_peers.versions(torch)


def peer_call(problem: Problem, name: str, tensors: Tensors) -> Call:
    """The problem as one call: forward gives out, backward (dq, dk, dv).

    Raises:
        RuntimeError: the backend refuses the problem.
    """
    if problem.op == "forward":
        return _forward(problem, name, tensors)
    q, k, v = leaves = tuple(tensor.detach().requires_grad_() for tensor in (tensors.q, tensors.k, tensors.v))
    with torch.enable_grad():
        out = _forward(problem, name, Tensors(q, k, v, None))()
    return lambda: torch.autograd.grad(out, leaves, tensors.dout, retain_graph=True)


def _forward(problem: Problem, name: str, tensors: Tensors) -> Call:
    causal = bool(problem["causal"])
    if name == "flash4":
        return _flash4(tensors, causal)
    grouped = problem["NH"] != problem["NH_kv"]

    def forward() -> Any:
        with torch_peers.quiet(), sdpa_kernel([BACKENDS[name]]):
            return scaled_dot_product_attention(tensors.q, tensors.k, tensors.v, is_causal=causal, enable_gqa=grouped)

    return forward


def _flash4(tensors: Tensors, causal: bool) -> Call:
    flash_attn_func = import_module("flash_attn.cute").flash_attn_func

    q, k, v = (tensor.transpose(1, 2) for tensor in (tensors.q, tensors.k, tensors.v))

    def forward() -> Any:
        result = flash_attn_func(q, k, v, causal=causal)
        out = result[0] if isinstance(result, tuple) else result
        return out.transpose(1, 2)

    return forward


def time_call(call: Call, budget: TimingBudget) -> Timing:
    """`autotune.ladder.torch_peers.time_call`, with its errors."""
    return torch_peers.time_call(torch, call, budget)


def difference(got: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """Largest ||got - other|| / ||other|| over the outputs that both have, in float64; NaN where any element is."""
    ratios = []
    for name in got.keys() & other.keys():
        one, two = got[name].double(), other[name].double()
        ratios.append(float((one - two).norm() / two.norm()))
    return max(ratios, key=lambda ratio: (math.isnan(ratio), ratio))
