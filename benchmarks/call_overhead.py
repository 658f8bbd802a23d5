"""What a call costs the host: ours beside PyTorch's attention and a launch of Triton's, interleaved in one run.

    python -m benchmarks.call_overhead [--json] [--host-only] [--calls 200] [--rounds 30]

Microseconds of the host's time a call, median and fastest of rounds in which every contender queues `--calls` calls of
a problem so small that the GPU keeps up, then waits. `--host-only` needs no GPU: tensors lie in the host's memory, and
in the place of the driver's launch stands a function that returns at once, so that what is left is Python's share.
"""

import argparse
import contextlib
import ctypes
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch.nn import functional

import autotune
from autotune.answers import calls
from autotune.answers import kernel as kernels
from autotune.answers.kernel import Kernel
from autotune.core.plan import Launch, LaunchPlan, argument_places
from autotune.integrations import torch_kernels, torch_sdpa
from autotune.torch import attention, scaled_dot_product_attention

FIELDS: Mapping[str, Any] = {"B": 1, "NH": 2, "T": 128, "HS": 64, "dtype": "bf16", "causal": True}

Call = Callable[[], object]


class NoDriver:
    """Takes launches and does nothing."""

    def __init__(self) -> None:
        equal = ctypes.CDLL(None).pthread_equal  # of two addresses that differ it says 0, as the driver does
        self.launch, self.memset = equal, lambda *_: 0

    def encode(self, *_: object) -> bytes:
        return bytes(128)

    def current(self, _: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class NoBinary:
    """Has every kernel."""

    def handle(self, _: str) -> int:
        return 1

    def places(self, launch: Launch) -> tuple[int, ...]:
        return argument_places(launch.args)

    def check(self, _: LaunchPlan) -> None:
        """Takes every plan."""


@contextlib.contextmanager
def host_only() -> Iterator[None]:
    """Within the block kernels of PyTorch's CPU tensors are launched by nobody."""
    made = {op: _undriven(op) for op in ("forward", "backward")}
    known = {(op, True, torch.bfloat16, FIELDS["HS"], FIELDS["HS"], -1): kernel for op, kernel in made.items()}
    replaced: tuple[tuple[Any, str, Any], ...] = (
        (torch_kernels, "_KERNELS", known),
        (torch_kernels, "_READY", {}),
        (torch_sdpa, "_KNOWN", {}),
        (kernels, "is_on_device", lambda _: True),
        (calls, "raw_stream", lambda _: 0),
        (torch._C, "_cuda_getDevice", lambda: 0),
        (Kernel, "_binary", lambda *_: NoBinary()),
        (autotune, "kernel", lambda op, **_: made[op]),
    )
    with contextlib.ExitStack() as stack:
        for home, name, value in replaced:
            stack.enter_context(mock.patch.object(home, name, value, create=True))
        yield


def _undriven(op: str) -> Kernel:
    found = autotune.best(op, device="h200", **FIELDS)
    driver: Any = NoDriver()
    return Kernel(found, lambda _: found, driver)


def contenders(device: str) -> dict[str, Call]:
    """What is called, by what the table calls it."""
    B, NH, T, HS = (FIELDS[name] for name in ("B", "NH", "T", "HS"))
    options: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
    q, k, v, dout = (torch.randn(B, T, NH, HS, **options).transpose(1, 2) for _ in range(4))
    out, lse = torch.empty_like(q), torch.empty(B, NH, T, device=device)
    dq, dk, dv = (torch.empty_like(q) for _ in range(3))
    forward, backward = (autotune.kernel(op, device="cuda", **FIELDS) for op in ("forward", "backward"))
    saved = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout}
    q1, k1, v1 = trained = [tensor.detach().requires_grad_() for tensor in (q, k, v)]

    def step(call: Callable[..., Any]) -> Call:
        return lambda: torch.autograd.grad(call(q1, k1, v1, is_causal=True), trained, dout)

    theirs = functional.scaled_dot_product_attention
    found: dict[str, Call] = {
        "autotune.kernel forward, outputs given": lambda: forward(q=q, k=k, v=v, out=out, lse=lse),
        "autotune.kernel forward": lambda: forward(q=q, k=k, v=v),
        "autotune.kernel backward, outputs given": lambda: backward(**saved, dq=dq, dk=dk, dv=dv),
        "autotune.kernel backward": lambda: backward(**saved),
        "autotune.torch.attention": lambda: attention(q, k, v, True),
        "autotune.torch.scaled_dot_product_attention": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
        "… to be differentiated": lambda: scaled_dot_product_attention(q1, k1, v1, is_causal=True),
        "… and differentiated": step(scaled_dot_product_attention),
    }
    if device == "cuda":
        found |= {
            "PyTorch's scaled_dot_product_attention": lambda: theirs(q, k, v, is_causal=True),
            "PyTorch's, to be differentiated": lambda: theirs(q1, k1, v1, is_causal=True),
            "PyTorch's, and differentiated": step(theirs),
            "an addition of PyTorch's": lambda: torch.add(q, k, out=out),
        }
        found |= _triton(out)
    return found


def _triton(tensor: Any) -> dict[str, Call]:
    try:
        from benchmarks.triton_launch import launcher
    except ImportError:
        return {}
    return {"a launch of Triton's, five tensors": launcher(tensor)}


def measure(called: Mapping[str, Call], count: int, rounds: int, wait: Callable[[], None]) -> dict[str, Any]:
    """Microseconds a call."""
    times: dict[str, list[float]] = {name: [] for name in called}
    for call in called.values():  # builds, loads, compiles
        for _ in range(3):
            call()
    for _ in range(rounds):
        for name, call in called.items():
            wait()
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count * 1e6)
    return {name: {"median": statistics.median(us), "fastest": min(us)} for name, us in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--host-only", action="store_true", help="without a GPU: Python's share")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    asked = parser.parse_args()
    with host_only() if asked.host_only else contextlib.nullcontext():
        device = "cpu" if asked.host_only else "cuda"
        wait = (lambda: None) if asked.host_only else torch.cuda.synchronize
        times = measure(contenders(device), asked.calls, asked.rounds, wait)
    if asked.json:
        print(json.dumps({"where": "host only" if asked.host_only else torch.cuda.get_device_name(), "us": times}))
        return
    print("  median  fastest, µs a call")
    for name, us in times.items():
        print(f"{us['median']:8.2f} {us['fastest']:8.2f}  {name}")


if __name__ == "__main__":
    main()
