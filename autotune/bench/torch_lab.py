"""A GPU with PyTorch on it, as the place where contenders are called."""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from autotune.bench.contender import Call
from autotune.bench.exact import Exact, exact
from autotune.bench.torch_timing import Tensors, call_us, time_call
from autotune.core import settings
from autotune.core.errors import DeviceMissing
from autotune.core.extras import install
from autotune.core.measurement import Timing
from autotune.core.problem import Problem
from autotune.devices.protocol import TimingBudget
from autotune.gpus.identity import parse_device
from autotune.gpus.known import gpu
from autotune.gpus.nvml import driver_release
from autotune.gpus.present import driver_version, gpu_count, present_gpu
from autotune.gpus.spec import DeviceSpec


class TorchLab:
    """The GPU with this index. It becomes PyTorch's current one."""

    def __init__(self, torch: Any, spec: DeviceSpec, index: int = 0, seed: int = 0) -> None:
        """Take it.

        Args:
            torch: the module.
            spec: of the GPU.
            index: as PyTorch and the driver count GPUs.
            seed: of the inputs.
        """
        self.torch, self.spec, self.index, self._seed = torch, spec, index, seed
        torch.cuda.set_device(index)

    def environment(self) -> Mapping[str, str]:
        """GPU, driver, CUDA version of the driver, host."""
        return environment(self.spec)

    def tensors(self, problem: Problem) -> Tensors:
        return Tensors.of(self.torch, problem, self._seed)

    def judge(self, problem: Problem, tensors: Tensors) -> Exact:
        return exact(self.torch, problem, tensors)

    def kernel(self, call: Call, budget: TimingBudget) -> Timing:
        return time_call(self.torch, call, budget)

    def call_us(self, call: Call, count: int) -> float:
        return call_us(call, count, self.wait)

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    @contextmanager
    def emptied(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.torch.cuda.empty_cache()


def environment(spec: DeviceSpec) -> dict[str, str]:
    """What a record of times on this machine's GPU tells of it."""
    return {
        "device": spec.title,
        "driver": driver_release() or "unknown",
        "cuda": driver_version() or "unknown",
        "host": platform.node(),
    }


def open_lab(device: str | None, seed: int = 0) -> TorchLab:
    """The GPU asked for, else that of `AUTOTUNE_DEVICE`, else the first one.

    Raises:
        DeviceMissing: there is no such GPU, or no PyTorch that uses it. The emulator is none: its times are estimates.
    """
    name = device or settings.device() or "cuda"
    meant = parse_device(name)
    if meant.kind != "cuda":
        raise DeviceMissing(
            f"there is nothing to compare on {name}: kernels and peers are timed on a GPU, and our times elsewhere are "
            "estimates, which stand beside no measured ones; use --device cuda on a machine with a GPU"
        )
    spec = present_gpu(meant.index)
    if spec is None:
        raise DeviceMissing(
            f"no NVIDIA GPU {meant.index} here (the driver shows {gpu_count()}), and peers are timed on a GPU alone; "
            "`autotune search --device cpu` estimates ours without one"
        )
    if meant.gpu is not None and gpu(meant.gpu).name != spec.name:
        raise DeviceMissing(f"no {gpu(meant.gpu).name} here: the GPU is an {spec.title}")
    try:
        torch = import_module("torch")
        import_module("torch.nn.attention")
    except ImportError as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise DeviceMissing(f"peers need PyTorch, which cannot be imported ({said}): {install('torch')}") from error
    if not torch.cuda.is_available():
        raise DeviceMissing(
            f"PyTorch {torch.__version__} cannot use the GPU (torch.cuda.is_available() is False): install one for CUDA"
        )
    return TorchLab(torch, spec, meant.index, seed)
