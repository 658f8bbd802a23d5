"""A rendered kernel family: what gets compiled, and how it is launched."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autotune.core.candidate import Candidate
from autotune.core.errors import TemplateError
from autotune.core.plan import LaunchPlan
from autotune.core.problem import Problem

SOURCE_NAME = "kernel.cu"
"""What a rendered source is called where it is built."""

NVCC_FLAGS = ("-std=c++17", "-O3")
"""Of every compile line: of builds, in the headers of rendered files and in exports."""


LARGEST = 2**20
"""Bytes of a template or a header at the most."""


def read_source(path: Path) -> str:
    """The text of a template or a header.

    Raises:
        TemplateError: it is larger than any of them can be; `/dev/zero` has no end.
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise TemplateError(f"{path} is no template: it is larger than {LARGEST >> 20} MiB")
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class Include:
    """One header of `templates/common`, by the name the source includes it with (`common/view.cuh`)."""

    name: str
    text: str


@dataclass(frozen=True)
class KernelSource:
    """Plain CUDA made from a template, for one problem and one configuration.

    `body` is the code without the header comment: it alone is hashed, with the includes, so that the same
    code for two problems is built once. `flags` are compiler options of the template's own.

    Raises:
        TemplateError: the header is more than comments, so that code of it would be compiled and not be hashed.
    """

    candidate: Candidate
    problem: Problem
    header: str
    body: str
    includes: tuple[Include, ...]  # transitive, each after what it includes itself
    plan: LaunchPlan
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for line in re.split(r"[\n\r\v\f\x85\u2028\u2029]", self.header):
            if line and (not line.startswith("//") or line.rstrip().endswith(("\\", "??/"))):
                raise TemplateError(f"the header of {self.candidate.template} is to be comments, not {line!r}")

    @property
    def code(self) -> str:
        """The file as written: header comment, then body."""
        return self.header + self.body

    @cached_property
    def hash(self) -> str:
        """Content hash (16 hex digits) of the body, its includes and its own compiler options."""
        digest = hashlib.sha256(self.body.encode())
        for include in self.includes:
            digest.update(b"\0" + include.name.encode() + b"\0" + include.text.encode())
        for flag in self.flags:
            digest.update(b"\0" + flag.encode())
        return digest.hexdigest()[:16]
