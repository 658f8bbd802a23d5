"""A rendered kernel family: what gets compiled, and how it is launched."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from autotune.core.candidate import Candidate
from autotune.core.plan import LaunchPlan
from autotune.core.problem import Problem


@dataclass(frozen=True)
class Include:
    """One header of `templates/common`, by the name the source includes it with (`common/view.cuh`)."""

    name: str
    text: str


@dataclass(frozen=True)
class KernelSource:
    """Plain CUDA made from a template, for one problem and one configuration.

    `body` is the code without the header comment: it alone is hashed, with the includes, so that the same
    code for two problems is built once.
    """

    candidate: Candidate
    problem: Problem
    header: str
    body: str
    includes: tuple[Include, ...]  # transitive, each after what it includes itself
    plan: LaunchPlan

    @property
    def code(self) -> str:
        """The file as written: header comment, then body."""
        return self.header + self.body

    @cached_property
    def hash(self) -> str:
        """Content hash (16 hex digits) of the body and its includes."""
        digest = hashlib.sha256(self.body.encode())
        for include in self.includes:
            digest.update(b"\0" + include.name.encode() + b"\0" + include.text.encode())
        return digest.hexdigest()[:16]
