"""Who is compared: a contender says whether it is here and computes a problem, and gives a call that does."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from autotune.core.problem import Problem

Call = Callable[[], Any]
"""The whole pass over tensors that are there: queued on the GPU, not waited for. Gives the outputs."""

OURS = "autotune"
"""Our name among the contenders."""

OUTPUTS: Mapping[str, tuple[str, ...]] = {"forward": ("out",), "backward": ("dq", "dk", "dv")}
"""The outputs that all contenders of an op have, in the order in which PyTorch's give them."""


class Contender(ABC):
    """One way to compute attention.

    Attributes:
        name: in records, and in options.
        title: in tables.
    """

    name: str
    title: str

    def why_absent(self) -> str | None:
        """Why it cannot be had on this machine; None where it can."""
        return None

    def why_not(self, problem: Problem) -> str | None:  # noqa: ARG002 - some compute everything
        """Why it does not compute a problem, as far as that is known without trying; None where it may."""
        return None

    @abstractmethod
    def call(self, problem: Problem, tensors: Any) -> Call:
        """The problem as one call on a lab's tensors.

        Raises:
            Exception: of whatever kind, where it refuses the problem.
        """

    def results(self, problem: Problem, tensors: Any) -> Mapping[str, Any]:
        """The outputs by name, for comparison with the exact ones."""
        return named_outputs(problem, self.call(problem, tensors)())

    def within(self) -> AbstractContextManager[Any]:
        """What calls must be made in; its cost is none of theirs."""
        return nullcontext()

    def versions(self) -> Mapping[str, str]:
        """What is measured with, by the packages' names."""
        return {}

    def said(self, problem: Problem) -> Mapping[str, Any]:  # noqa: ARG002 - most have nothing to tell
        """What else a record tells of how it computed a problem."""
        return {}


def named_outputs(problem: Problem, result: Any) -> Mapping[str, Any]:
    """What a call gave, by name: a mapping, a tuple, or the one output that there is.

    Raises:
        ValueError: it is not as many outputs as the op has.
    """
    if isinstance(result, Mapping):
        return {name: result[name] for name in OUTPUTS[problem.op]}
    values = result if isinstance(result, tuple) else (result,)
    return dict(zip(OUTPUTS[problem.op], values, strict=True))
