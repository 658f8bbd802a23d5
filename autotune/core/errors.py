"""The one exception tree. A message says what was wrong, with which value, and what to do about it."""


class AutotuneError(Exception):
    """Base of every error this package raises on purpose; the command line exits with `exit_code`."""

    exit_code = 1


class UsageError(AutotuneError):
    """The request itself is wrong: an unknown option value, a malformed file, an impossible problem."""

    exit_code = 2


class ProblemError(UsageError):
    """A problem that makes no sense: T=0, NH not divisible by NH_kv, an unknown op or dtype."""


class TemplateError(UsageError):
    """A template whose front matter or body is wrong; names the file and the line where known."""


class ExpressionError(TemplateError):
    """An expression in front matter that does not parse, uses an unknown name or leaves the sandbox."""


class NoFeasibleConfiguration(AutotuneError):
    """Every configuration is excluded by a constraint, or every candidate failed."""

    exit_code = 3


class DeviceMissing(AutotuneError):
    """The device asked for is not on this machine, or its Python package is not installed."""

    exit_code = 4


class DeviceRefused(DeviceMissing):
    """The device is here, but does not do what was asked of it: this user may not, or this model or setup cannot."""


class BuildError(AutotuneError):
    """The build machinery failed, which is not the candidate's fault (a missing compiler, a full disk)."""


class CompileError(AutotuneError):
    """A candidate that the compiler refused; the message is the first lines of the compiler's own."""


class CompileTimeout(CompileError):
    """A candidate that the compiler did not finish within its time limit; another try may."""


class LaunchError(AutotuneError):
    """A candidate that could not be launched or stopped with an error on the device."""


class FaultFound(AutotuneError):
    """A candidate in whose traced run the checker found something wrong, or a kernel whose results are wrong.

    The message is the first finding.
    """


class SharedCacheWarning(UserWarning):
    """What a build cache holds is code, and somebody else can write it. No error: it is said, and the work goes on."""


class StoreError(AutotuneError):
    """The database cannot be opened, read or written; nothing was overwritten."""


class DatabaseAway(StoreError):
    """The database's server is gone, does not answer, or is held by another process; another try may succeed."""
