"""Attention on PyTorch tensors by tuned kernels: which kernel, with which results, without gradients or dispatch.

`out`, `dq`, `dk` and `dv` lie in memory as `q`, `k` and `v` do, so that no transposed model pays for a copy.
"""

import math
from functools import cache
from typing import Any

import torch

from autotune.answers.calls import TorchCall
from autotune.answers.kernel import Kernel, kernel, remember
from autotune.core.dtypes import DTYPES, OPERAND_DTYPES
from autotune.core.errors import AutotuneError, LaunchError, NoFeasibleConfiguration, UsageError
from autotune.gpus.identity import DeviceName

NAMES = {getattr(torch, DTYPES[name].array_name): name for name in OPERAND_DTYPES}
"""Element types that kernels take, by PyTorch's."""

_KERNELS: dict[tuple[Any, ...], Kernel] = {}

_READY: dict[tuple[Any, ...], TorchCall] = {}
"""By what `kind_of` says of the inputs of either pass: such a call costs one look-up."""


def ready(q: Any, k: Any, v: Any, causal: bool, scale: float) -> TorchCall | None:
    """What `forward` has kept of an earlier call with tensors like these."""
    return _READY.get(kind_of(causal, scale, q, k, v))


def forward(q: Any, k: Any, v: Any, causal: bool, scale: float, call: TorchCall | None = None) -> tuple[Any, Any]:
    """`out` (B, NH, T, HS_v) like `q`, and the natural log-sum-exp of every row, (B, NH, T) in float32.

    Args:
        q: (B, NH, T, HS).
        k: (B, NH_kv, T_kv, HS).
        v: (B, NH_kv, T_kv, HS_v).
        causal: query i sees keys up to i + T_kv - T.
        scale: of the scores, above 0.
        call: what `ready` gives, where that is known.

    Raises:
        UsageError: tensors that no kernel takes.
        NoFeasibleConfiguration: no family computes it on this device.
        CompileError, BuildError, LaunchError: of the kernel.
    """
    known = call or ready(q, k, v, causal, scale)
    if known is None:
        require(q, k, v, scale)
    out = empty_out(q, v)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if known is not None and _queued(known, q, k, v, out, lse):
        return out, lse
    if out.numel() == 0 or k.numel() == 0:
        return out.zero_(), lse.fill_(-math.inf)
    _run("forward", causal, scale, {"q": q, "k": k, "v": v}, {"out": out, "lse": lse})
    return out, lse


def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, causal: bool, scale: float) -> tuple[Any, Any, Any]:
    """`dq`, `dk` and `dv`, from what `forward` gave.

    Raises:
        AutotuneError: as `forward`.
    """
    known = _READY.get(kind_of(causal, scale, q, k, v, out, lse, dout))
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if known is not None and _queued(known, q, k, v, out, lse, dout, dq, dk, dv):
        return dq, dk, dv
    if dq.numel() == 0 or dk.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    given = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout}
    _run("backward", causal, scale, given, {"dq": dq, "dk": dk, "dv": dv})
    return dq, dk, dv


def empty_out(q: Any, v: Any) -> Any:
    """New, for results of these tensors: where heads of V are others than those of Q, its rows lie as Q's do."""
    (B, NH, T, HS), HS_v = q.shape, v.shape[3]
    if HS_v == HS:
        return torch.empty_like(q)
    if q.stride(2) < q.stride(1):
        return torch.empty((B, NH, T, HS_v), dtype=q.dtype, device=q.device)
    return torch.empty((B, T, NH, HS_v), dtype=q.dtype, device=q.device).transpose(1, 2)


def require(q: Any, k: Any, v: Any, scale: float) -> None:
    """Raise UsageError for tensors that do not go together."""
    if q.dim() == 4 and k.dim() == 4 and v.dim() == 4 and k.shape[:3] == v.shape[:3] and q.dtype == k.dtype == v.dtype:
        (B, NH, _, HS), (B_kv, NH_kv, _, HS_kv) = q.shape, k.shape
        if B_kv == B and HS_kv == HS and NH % max(1, NH_kv) == 0 and q.device == k.device == v.device and scale > 0:
            if q.dtype in NAMES:
                return
            raise UsageError(f"attention of {q.dtype}: kernels take {', '.join(map(str, NAMES))}")
    said = ", ".join(
        f"{name} {tuple(t.shape)} {t.dtype} on {t.device}" for name, t in zip("qkv", (q, k, v), strict=True)
    )
    raise UsageError(
        f"attention takes q (B, NH, T, HS), k (B, NH_kv, T_kv, HS) and v (B, NH_kv, T_kv, HS_v) of one dtype on one "
        f"device, NH divisible by NH_kv, and a scale above 0; got {said}, scale={scale}"
    )


def kernel_for(op: str, causal: bool, q: Any, k: Any, v: Any) -> Kernel:
    """The kernel of an op for these tensors' element type, head sizes and device.

    The layout is the one whose winners ship: kernels take any strides.
    """
    key = (op, causal, q.dtype, q.shape[3], v.shape[3], q.get_device())
    found = _KERNELS.get(key)
    if found is None:
        (B, NH, T, HS), (_, NH_kv, T_kv, _) = q.shape, k.shape
        found = _KERNELS[key] = kernel(
            op, device=device_name(q.device.type, q.device.index or 0), B=B, NH=NH, NH_kv=NH_kv, T=T, T_kv=T_kv,
            HS=HS, HS_v=v.shape[3], dtype=NAMES[q.dtype], causal=causal,
        )  # fmt: skip
    return found


def device_name(kind: str, index: int) -> str:
    """Ours for PyTorch's device."""
    return str(DeviceName("cpu" if kind == "cpu" else "cuda", index=index))


@cache
def why_infeasible(device: str, dtype: str, HS: int, HS_v: int, gradients: bool) -> str | None:
    """Why no family computes attention with these; None where one does, forward and, for gradients, backward."""
    try:
        for op in ("forward", "backward") if gradients else ("forward",):
            for causal in (False, True):
                kernel(op, device=device, B=1, NH=1, T=128, HS=HS, HS_v=HS_v, dtype=dtype, causal=causal)
    except NoFeasibleConfiguration as error:
        return str(error)
    except AutotuneError as error:
        return f"{type(error).__name__}: {error}"
    return None


def kind_of(causal: bool, scale: float | None, *tensors: Any) -> tuple[Any, ...]:
    """All that a call depends on but addresses, which are asked every time."""
    kind = [causal, scale]
    for tensor in tensors:
        kind += (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device())
    return tuple(kind)


def _queued(known: TorchCall, *tensors: Any) -> bool:
    """Launch; False where TMA does not take a tensor from where it begins."""
    try:
        known.queue([tensor.data_ptr() for tensor in tensors])
    except LaunchError:
        return False
    return True


def _run(op: str, causal: bool, scale: float, given: dict[str, Any], made: dict[str, Any]) -> None:
    kind = kind_of(causal, scale, *given.values())
    apart = [name for name, tensor in given.items() if name != "lse" and tensor.stride(3) != 1]
    given |= {name: given[name].contiguous() for name in apart}
    called = kernel_for(op, causal, given["q"], given["k"], given["v"])
    try:
        called(**given, **made, scale=scale)
        known = None if apart else called.ready({**given, **made, "scale": scale})
        if known is not None:
            remember(_READY, kind, known)
    except LaunchError:
        copies = {name: tensor if _is_aligned(tensor) else _copied(tensor) for name, tensor in given.items()}
        if all(copies[name] is given[name] for name in given):
            raise
        called(**copies, **made, scale=scale)


def _is_aligned(tensor: Any) -> bool:
    """Whether TMA takes it: everything at multiples of 16 bytes."""
    size = tensor.element_size()
    steps = [tensor.stride(axis) * size for axis in range(tensor.dim() - 1) if tensor.shape[axis] > 1]
    return tensor.data_ptr() % 16 == 0 and not any(step % 16 for step in steps)


def _copied(tensor: Any) -> Any:
    return tensor.clone(memory_format=torch.contiguous_format)
