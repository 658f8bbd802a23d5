"""Times PyTorch's attention backends and cuBLAS: `python -m autotune.ladder.torch_peers`, one request, one answer.

A process of its own, so that the climb does not import PyTorch: it is sent the problems and sends their milliseconds.
Times are GPU times between two events, L2 flushed, as the climb's own are.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from autotune.bench.peers.of_torch import backends
from autotune.bench.torch_timing import Tensors, time_call, versions
from autotune.core.channel import LOST, open_channel
from autotune.core.dtypes import torch_dtype
from autotune.core.errors import LaunchError
from autotune.core.problem import Problem, split_json
from autotune.devices.protocol import TimingBudget
from autotune.ops.registry import get_op

_SHOWN = {"cudnn": "cuDNN"}
"""Backends that the ladder calls otherwise than `autotune bench` does."""

_BUDGET = TimingBudget(min_repeats=10, max_repeats=50, max_seconds=0.2)


def time_attention(torch: Any, problem: Problem) -> dict[str, float]:
    """Milliseconds of every backend that takes the problem."""
    times: dict[str, float] = {}
    tensors = Tensors.of(torch, problem)
    for peer in backends(torch):
        if peer.why_not(problem) is None:
            with contextlib.suppress(RuntimeError, LaunchError), peer.within():
                call = peer.call(problem, tensors)
                times[_SHOWN.get(peer.name, peer.name)] = time_call(torch, call, _BUDGET).median_ms
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
