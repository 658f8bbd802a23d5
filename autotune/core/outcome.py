"""How a trial ended. Typed data, never a bare `inf`."""

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a trial, as stored and shown."""

    OK = "ok"
    INFEASIBLE = "infeasible"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    CRASH = "crash"
    PRUNED = "pruned"


DOUBTFUL = (Outcome.TIMEOUT, Outcome.CRASH)
"""What a busy machine, or who kills processes there, may do to a right kernel: such candidates are tried once more."""
