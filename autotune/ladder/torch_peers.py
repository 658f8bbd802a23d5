"""Times PyTorch's attention backends and cuBLAS: `python -m autotune.ladder.torch_peers`, one request, one answer.

A process of its own, so that the climb does not import PyTorch: it is sent the problems and sends their milliseconds.
Times are GPU times between two events, L2 flushed, as the climb's own are.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from autotune.core.channel import LOST, open_channel
from autotune.core.dtypes import torch_dtype
from autotune.core.errors import LaunchError
from autotune.core.measurement import Timing
from autotune.core.problem import Problem, split_json
from autotune.devices.protocol import TimingBudget
from autotune.devices.timing import time_adaptively
from autotune.ops.registry import get_op

BACKENDS = {
    "cuDNN": "CUDNN_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
"""Names in `torch.nn.attention.SDPBackend`."""

_BUDGET = TimingBudget(min_repeats=10, max_repeats=50, max_seconds=0.2)
_FLUSH_BYTES = 1 << 28
_SLEEP_CYCLES = 1_000_000  # half a millisecond: the host queues the whole call meanwhile


def time_attention(torch: Any, problem: Problem) -> dict[str, float]:
    """Milliseconds of every backend that takes the problem; where it is causal T must be T_kv, as PyTorch aligns it."""
    if problem["causal"] and problem["T"] != problem["T_kv"]:
        return {}
    times = {}
    for name, backend in BACKENDS.items():
        allowed = torch.nn.attention.sdpa_kernel([getattr(torch.nn.attention.SDPBackend, backend)])
        with contextlib.suppress(RuntimeError, LaunchError), quiet(), allowed:
            times[name] = time_call(torch, _attention(torch, problem), _BUDGET).median_ms
    return times


def time_product(torch: Any, problem: Problem) -> dict[str, float]:
    """Milliseconds of cuBLAS for the whole product (it has no masks), operands contiguous; of fp32 with tf32, too."""
    B, M, N, K = (problem.integer(name) for name in ("B", "M", "N", "K"))
    matrices, layout = B * problem.integer("NH"), str(problem["layout"])
    a, b = (
        _matrices(torch, problem, matrices, *shape, layout[i] == "t") for i, shape in enumerate(((M, K), (K, N)))
    )  # fmt: skip
    c = torch.empty((matrices, M, N), dtype=a.dtype, device="cuda")
    names = {"cuBLAS": False, "cuBLAS tf32": True} if problem.dtype == "fp32" else {"cuBLAS": False}
    times = {}
    for name, tf32 in names.items():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        times[name] = time_call(torch, lambda: torch.bmm(a, b, out=c), _BUDGET).median_ms
    torch.backends.cuda.matmul.allow_tf32 = False
    return times


def _matrices(torch: Any, problem: Problem, count: int, rows: int, cols: int, transposed: bool) -> Any:
    shape = (count, cols, rows) if transposed else (count, rows, cols)
    stored = torch.randn(shape, dtype=torch_dtype(torch, problem.dtype), device="cuda")
    return stored.transpose(1, 2) if transposed else stored


def _attention(torch: Any, problem: Problem) -> Callable[[], Any]:
    """The problem as one call on (B, NH, T, HS) views, in memory as the problem's layout has them."""
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (
        attention_tensor(torch, problem, *names).detach().requires_grad_(problem.op == "backward")
        for names in (("NH", "T"), ("NH_kv", "T_kv"), ("NH_kv", "T_kv"))
    )
    grouped = problem["NH"] != problem["NH_kv"]

    def forward() -> Any:
        return attend(q, k, v, is_causal=bool(problem["causal"]), enable_gqa=grouped)

    if problem.op == "forward":
        return forward
    out = forward()
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def attention_tensor(torch: Any, problem: Problem, heads: str, length: str) -> Any:
    """Standard normal, shape (B, `heads`, `length`, HS) by the problem's fields, in memory as its layout says."""
    shape = (problem.integer("B"), problem.integer(length), problem.integer(heads), problem.integer("HS"))
    tensor = torch.randn(shape, dtype=torch_dtype(torch, problem.dtype), device="cuda").transpose(1, 2)
    return tensor.contiguous() if problem["layout"] == "bhtd" else tensor


def time_call(torch: Any, call: Callable[[], Any], budget: TimingBudget) -> Timing:
    """Median GPU time between two events, L2 flushed, with the host far enough ahead that no launch is waited for.

    Raises:
        LaunchError: the device reports a time that cannot be one.
    """
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


def versions(torch: Any) -> dict[str, str]:
    """What was measured with."""
    return {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "cuda": str(torch.version.cuda)}


def answer(torch: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Times for a request: `{"gpu": 0, "attention": problem, "products": {key: problem}}`."""
    torch.cuda.set_device(request["gpu"])
    products = {}
    for key, fields in request["products"].items():
        with contextlib.suppress(RuntimeError, LaunchError):
            products[key] = time_product(torch, _problem(fields))
    attention = time_attention(torch, _problem(request["attention"])) if request["attention"] else {}
    return {"attention": attention, "products": products, "versions": versions(torch)}


def _problem(fields: Mapping[str, Any]) -> Problem:
    op, values = split_json(fields)
    return get_op(op).problem(**values)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block PyTorch does not warn of what a backend refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _missing(error: Exception) -> dict[str, Any]:
    return {"missing": (str(error).splitlines() or [type(error).__name__])[0]}


def main() -> None:
    """Import PyTorch, wait for the request, answer it."""
    try:
        connection = open_channel()
        reply: dict[str, Any] = {}
        try:
            import torch
            import torch.nn.attention
        except ImportError as error:
            reply = _missing(error)
        request = connection.recv()
        try:
            reply = reply or answer(torch, request)
        except RuntimeError as error:
            reply = _missing(error)
        connection.send(reply)
    except LOST:
        pass  # nobody asks any more


if __name__ == "__main__":
    main()
