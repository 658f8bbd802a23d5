"""Writing pictures, for every command with `--plot`."""

from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.errors import UsageError
from autotune.core.extras import install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Before there is anything to draw, whether a plot can be written there.

    Raises:
        UsageError: not a name of a picture, no such folder, or matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: the name must end in one of {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(f"--plot needs matplotlib: {install('plot')}") from error


def save_plot(figure: "Figure", path: Path) -> None:
    """Write a picture.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise UsageError(f"--plot {path}: {error}") from error
