"""A `torch` whose kernels take times of their own: matrices by what is multiplied, attention by its backend."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

float16, bfloat16, float32, uint8 = "float16", "bfloat16", "float32", "uint8"
__version__ = "9.9"
version = SimpleNamespace(cuda="13.0")

TIMES = {"CUDNN_ATTENTION": 0.25, "EFFICIENT_ATTENTION": 0.5, "MATH": 4.0}  # FLASH_ATTENTION refuses everything

_state: dict[str, Any] = {"backend": None, "ms": 0.0, "gpu": None}


class Tensor:
    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, dtype

    def transpose(self, one: int, two: int) -> "Tensor":
        shape = list(self.shape)
        shape[one], shape[two] = shape[two], shape[one]
        return Tensor(tuple(shape), self.dtype)

    def contiguous(self) -> "Tensor":
        return self

    def detach(self) -> "Tensor":
        return self

    def requires_grad_(self, wanted: bool = True) -> "Tensor":
        return self

    def zero_(self) -> None:
        _state["ms"] = 0.0


def randn(shape: tuple[int, ...], dtype: str, device: str) -> Tensor:
    return Tensor(shape, dtype)


def manual_seed(seed: int) -> None:
    pass


def enable_grad() -> Any:
    return nullcontext()


def empty(shape: Any, dtype: str, device: str) -> Tensor:
    return Tensor(shape, dtype)


def bmm(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Takes 1 ms a matrix, half of it where fp32 is multiplied in tf32."""
    assert a.shape[2] == b.shape[1]
    assert out.shape == (a.shape[0], a.shape[1], b.shape[2])
    tf32 = a.dtype == float32 and backends.cuda.matmul.allow_tf32
    _state["ms"] = a.shape[0] * (0.5 if tf32 else 1.0)


def _attend(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, enable_gqa: bool) -> Tensor:
    if _state["backend"] not in TIMES:
        raise RuntimeError("no kernel")
    assert enable_gqa == (q.shape[1] != k.shape[1])
    _state["ms"] = TIMES[_state["backend"]]
    return q


def _grad(out: Tensor, inputs: Any, grad: Tensor, retain_graph: bool) -> None:
    _state["ms"] = 3 * TIMES[_state["backend"]]


@contextmanager
def _sdpa_kernel(chosen: list[str]) -> Any:
    (_state["backend"],) = chosen
    yield


class _Event:
    def __init__(self, enable_timing: bool) -> None:
        self._ms = 0.0

    def record(self) -> None:
        self._ms = _state["ms"]

    def elapsed_time(self, other: "_Event") -> float:
        return other._ms - self._ms


_BACKENDS = SimpleNamespace(**{name: name for name in (*TIMES, "FLASH_ATTENTION")})
backends = SimpleNamespace(
    cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)), cudnn=SimpleNamespace(version=lambda: 91900)
)
cuda = SimpleNamespace(
    Event=_Event, _sleep=lambda cycles: None, synchronize=lambda: None, set_device=lambda gpu: _state.update(gpu=gpu)
)
autograd = SimpleNamespace(grad=_grad)
nn = SimpleNamespace(
    attention=SimpleNamespace(SDPBackend=_BACKENDS, sdpa_kernel=_sdpa_kernel),
    functional=SimpleNamespace(scaled_dot_product_attention=_attend),
)
