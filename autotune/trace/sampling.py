"""Which blocks of a launch are traced in full."""

from autotune.core.plan import Dim3


def sample_blocks(grid: Dim3, most: int | None) -> tuple[int, ...]:
    """At most `most` (at least one) of a grid's blocks, as numbers (x fastest); all of them if `most` is None.

    First and last along every axis, since those are where tiles are cut and masks begin and end, then the middle of
    every axis, then blocks spread evenly over what is left.
    """
    total = grid[0] * grid[1] * grid[2]
    if most is None or total <= most:
        return tuple(range(total))
    axes = [list(dict.fromkeys((0, size - 1, size // 2))) for size in grid]
    corners = [(x, y, z) for z in axes[2] for y in axes[1] for x in axes[0]]
    corners.sort(key=lambda place: sum(0 < i < size - 1 for i, size in zip(place, grid, strict=True)))
    longest = max(range(3), key=lambda axis: grid[axis])
    chosen = [[0, 0, 0], [size - 1 for size in grid], [size // 2 for size in grid]]
    ends = (0, grid[longest] - 1, grid[longest] // 4, 3 * grid[longest] // 4)
    chosen += [[end if axis == longest else size // 2 for axis, size in enumerate(grid)] for end in ends]
    numbers = [x + grid[0] * (y + grid[1] * z) for x, y, z in (*chosen, *corners)]
    return tuple(sorted(list(dict.fromkeys(numbers))[:most]))
