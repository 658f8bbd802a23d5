"""Instructions put together by hand."""

from typing import Any

from autotune.estimate.sass import Instruction, Kind, Pipe

_PIPES: dict[Kind, Pipe] = {
    "tensor": "tensor", "fp32": "fma", "exponential": "special", "shared load": "exchange", "global load": "load",
    "async copy": "copy", "global store": "store",
}  # fmt: skip


def do(kind: Kind = "", **changed: Any) -> Instruction:
    """An instruction of this kind; one clock until the next, no scoreboards, unless said otherwise."""
    fields: dict[str, Any] = {
        "pipe": _PIPES.get(kind, ""), "kind": kind, "amount": 1.0, "words": 1, "conditional": False, "target": None,
        "stall": 1, "sets": None, "frees": None, "waits": (), "groups": 0,
    }  # fmt: skip
    return Instruction(**{**fields, **changed})


def branch(target: int, *, conditional: bool = True) -> Instruction:
    """To the instruction with this number."""
    return do("branch", target=target, conditional=conditional)


END = do("exit")
