"""Writing pictures, for every command with `--plot`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.errors import UsageError
from autotune.core.extras import install
from autotune.core.files import not_written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#0b0b0b", "#52514e", "#e1e0d9"
"""Colours of what stands for itself, of axes and their names, and of lines behind."""

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
        AutotuneError: the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise not_written(path, error) from error


def dress_axes(axes: Any) -> None:
    """Lines across, behind what is drawn; no frame but the axis below, and no ticks."""
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=MUTED, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
