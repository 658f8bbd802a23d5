"""Clocks and inputs on a GPU with PyTorch: tensors of a problem, the GPU's time of a call, and the host's.

Functions take the module `torch`, which only those import who have it.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.bench.contender import Call
from autotune.core.dtypes import torch_dtype
from autotune.core.measurement import Timing
from autotune.core.problem import Problem
from autotune.devices.protocol import TimingBudget
from autotune.devices.timing import time_adaptively

_FLUSH_BYTES = 1 << 28
_SLEEP_CYCLES = 1_000_000  # half a millisecond: the host queues the whole call meanwhile


@dataclass(frozen=True)
class Tensors:
    """A problem's inputs, standard normal, shape (B, NH, T, HS), in memory as the problem's layout says.

    `v` and `dout` have HS_v columns; `dout` is None for a forward problem.
    """

    q: Any
    k: Any
    v: Any
    dout: Any

    @classmethod
    def of(cls, torch: Any, problem: Problem, seed: int = 0, device: str = "cuda") -> "Tensors":
        """New ones."""
        torch.manual_seed(seed)
        query, key = ("NH", "T"), ("NH_kv", "T_kv")
        sizes = ((*query, "HS"), (*key, "HS"), (*key, "HS_v"))
        q, k, v = (attention_tensor(torch, problem, *names, device) for names in sizes)
        backward = problem.op == "backward"
        return cls(q, k, v, attention_tensor(torch, problem, *query, "HS_v", device) if backward else None)


def attention_tensor(torch: Any, problem: Problem, heads: str, length: str, size: str, device: str = "cuda") -> Any:
    """Standard normal, shape (B, `heads`, `length`, `size`) by the problem's fields, in memory as its layout says."""
    shape = (problem.integer("B"), problem.integer(length), problem.integer(heads), problem.integer(size))
    tensor = torch.randn(shape, dtype=torch_dtype(torch, problem.dtype), device=device).transpose(1, 2)
    return tensor.contiguous() if problem["layout"] == "bhtd" else tensor


def time_call(torch: Any, call: Call, budget: TimingBudget) -> Timing:
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


def call_us(call: Call, count: int, wait: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> float:
    """Microseconds of the host's for each of `count` calls, which are queued one after the other; `wait` ends them."""
    wait()
    start = clock()
    for _ in range(count):
        call()
    took = clock() - start
    wait()
    return took / count * 1e6


def versions(torch: Any) -> dict[str, str]:
    """What is measured with."""
    return {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "cuda": str(torch.version.cuda)}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block PyTorch does not warn of what a backend refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
