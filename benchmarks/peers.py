"""PyTorch's attention backends as things that can be timed: flash, cuDNN, efficient, math."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from autotune.devices.base import TimingBudget
from autotune.devices.timing import time_adaptively
from autotune.measurement import Timing
from autotune.problem import Problem

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
_FLUSH_BYTES = 1 << 28
_SLEEP_CYCLES = 1_000_000  # half a millisecond: the host queues the whole call meanwhile


def time_peers(problem: Problem, budget: TimingBudget) -> dict[str, Timing]:
    """GPU time of every backend that accepts the problem; T must equal T_kv where it is causal."""
    timings = {}
    for name, backend in BACKENDS.items():
        with contextlib.suppress(RuntimeError), _quiet(), sdpa_kernel([backend]):
            timings[name] = _time(_call(problem), budget)
    return timings


def versions() -> dict[str, str]:
    """What was measured with."""
    return {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "cuda": str(torch.version.cuda)}


def _call(problem: Problem) -> Callable[[], Any]:
    """The problem as one call; layouts are (B, NH, T, HS) views of (B, T, NH, HS) where the problem says bthd."""
    q, k, v = (_tensor(problem, heads, length) for heads, length in (("NH", "T"), ("NH_kv", "T_kv"), ("NH_kv", "T_kv")))
    grouped = problem["NH"] != problem["NH_kv"]

    def forward() -> Any:
        return scaled_dot_product_attention(q, k, v, is_causal=bool(problem["causal"]), enable_gqa=grouped)

    if problem.op == "forward":
        return forward
    out = forward()
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def _tensor(problem: Problem, heads: str, length: str) -> Any:
    B, HS = problem.integer("B"), problem.integer("HS")
    shape = (B, problem.integer(length), problem.integer(heads), HS)
    tensor = torch.randn(shape, dtype=DTYPES[problem.dtype], device="cuda").transpose(1, 2)
    if problem["layout"] == "bhtd":
        tensor = tensor.contiguous()
    return tensor.detach().requires_grad_(problem.op == "backward")


def _time(call: Callable[[], Any], budget: TimingBudget) -> Timing:
    """Median GPU time between two events, L2 flushed, with the host far enough ahead that no launch is waited for."""
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def sample(repeats: int) -> Sequence[float]:
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for before, after in pairs:
            flush.zero_()
            torch.cuda._sleep(_SLEEP_CYCLES)
            before.record()
            call()
            after.record()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in pairs]

    sample(2)
    return time_adaptively(sample, budget, "events, L2 flushed")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
