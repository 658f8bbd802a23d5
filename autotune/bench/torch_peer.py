"""What contenders of PyTorch's world have in common: a forward pass on q, k and v; autograd gives the backward one."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module, metadata
from typing import Any

from autotune.bench.contender import Call, Contender
from autotune.bench.torch_timing import Tensors, quiet
from autotune.core.problem import Problem

Attend = Callable[[Any, Any, Any], Any]
"""From q (B, NH, T, HS), k (B, NH_kv, T_kv, HS) and v (B, NH_kv, T_kv, HS_v) to out (B, NH, T, HS_v)."""


class TorchPeer(Contender):
    """Attention as a function of PyTorch's tensors that autograd differentiates."""

    @property
    def torch(self) -> Any:
        """The module."""
        return import_module("torch")

    @abstractmethod
    def attend(self, problem: Problem) -> Attend:
        """The forward pass."""

    def call(self, problem: Problem, tensors: Tensors) -> Call:
        """Backward: gradients of one forward pass, whose graph is kept.

        Raises:
            RuntimeError: it refuses the problem.
        """
        attend, (q, k, v), dout = self.attend(problem), (tensors.q, tensors.k, tensors.v), tensors.dout
        if problem.op == "forward":
            return lambda: attend(q, k, v)
        torch = self.torch
        leaves = tuple(tensor.detach().requires_grad_() for tensor in (q, k, v))
        with torch.enable_grad():
            out = attend(*leaves)
        return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)

    def within(self) -> AbstractContextManager[Any]:
        return quiet()


class PackagePeer(TorchPeer):
    """Attention of a package that may not be installed.

    Attributes:
        package: what it is installed by.
        module: what is imported.
        function: its attention.
    """

    package: str
    module: str
    function: str

    @cached_property
    def _imported(self) -> tuple[Any, str | None]:
        """The module, or why there is none: what a package raises when it is imported is no error of ours."""
        try:
            module = import_module(self.module)
            getattr(module, self.function)
        except Exception as error:  # noqa: BLE001 - built for another PyTorch or CUDA, mostly; whatever it raises
            version = installed(self.package)
            name = error.name if isinstance(error, ModuleNotFoundError) else None
            missing = name is not None and f"{self.module}.".startswith(f"{name}.")
            if missing or (version is None and isinstance(error, AttributeError)):
                return None, f"{self.package} is not installed"
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return None, f"{self.package} {version or ''} cannot be imported: {said}".replace("  ", " ")
        return module, None

    @property
    def imported(self) -> Any:
        """The module; None where it is absent."""
        return self._imported[0]

    def why_absent(self) -> str | None:
        return self._imported[1]

    def versions(self) -> Mapping[str, str]:
        return {} if self.imported is None else {self.package: installed(self.package) or "unknown"}


def installed(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def by_rows(tensor: Any) -> Any:
    """(B, NH, T, HS) as (B, T, NH, HS), and back."""
    return tensor.transpose(1, 2)


def top_left(problem: Problem) -> bool:
    """Whether a mask that is aligned top-left is another one than the problem's."""
    return bool(problem["causal"]) and problem["T"] != problem["T_kv"]
