import math
from dataclasses import replace

import pytest

from autotune.core.plan import Launch
from autotune.estimate.counts import MMA_FLOPS, Counts, extrapolate, grid_ratio, uneven
from autotune.estimate.grid import works_of


def counts(T: int, heads: int = 1) -> Counts:
    """5 a row and 3 a pair."""
    work = float(heads * (5 * T + 3 * T * T))
    return Counts("k", fp32=work, shared_loads=2 * work, wavefronts=4 * work, sectors_stored=float(heads * T))


def launch(*grid: int) -> Launch:
    return Launch("k", (*grid, *(1,) * (3 - len(grid))), (32, 1, 1), 0, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("T", [128, 256, 1000, 4096])
def test_a_polynomial_of_the_length_is_found_exactly(T: int) -> None:
    found, expected = extrapolate(counts(128), counts(256), 128, T, heads=48), counts(T, heads=48)
    for name in ("fp32", "shared_loads", "wavefronts", "sectors_stored", "tensor"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name))


def test_causal_blocks_grow_evenly_at_any_length() -> None:
    # 1 + 2 + ... : blocks of 128 rows do as many units as they have tiles; the last starts first.
    short, double = (Counts("k", shared_loads=n * (n + 1) / 2) for n in (2, 4))
    whole = extrapolate(short, double, 256, 1024, heads=48)
    assert whole.shared_loads == pytest.approx(48 * 36)
    grids = (launch(1, 4), launch(1, 2), launch(48, 8), 48)
    found = uneven(whole, double, *grids, first=4 / 2.5)
    assert found.axis == 1
    assert found.first == pytest.approx(8 / 4.5)
    assert uneven(whole, double, *grids, first=1 / 2.5).first == pytest.approx(1 / 4.5)


@pytest.mark.parametrize("whole_grid", [launch(16, 8, 3), launch(16, 8, 4)])
def test_blocks_that_one_head_leaves_without_work_do_not_count(whole_grid: Launch) -> None:
    """A grid with room for 16 heads at once, of which the traced problem has one: 15 of 16 blocks end at once."""
    short, double = (Counts("k", shared_loads=n * (n + 1) / 2) for n in (2, 4))
    whole = extrapolate(short, double, 256, 1024, heads=48)
    found = uneven(whole, double, launch(16, 4), launch(16, 2), whole_grid, 48, first=16 * 4 / 2.5)
    assert found.axis == 1
    assert found.first == pytest.approx(8 / 4.5)
    assert found.idle == math.prod(whole_grid.grid) - 48 * 8
    assert len(works_of(whole_grid, found)) == 48 * 8
    assert sum(works_of(whole_grid, found)) == pytest.approx(48 * 8)


def test_idle_blocks_are_the_highest_heads_of_the_last_group() -> None:
    """Five heads in groups of four: of the second group one head has work, the first blocks of a head most."""
    found = works_of(launch(4, 2, 2), replace(Counts("k"), first=1.5, axis=1, idle=6))
    assert found == [1.5] * 4 + [0.5] * 4 + [1.5, 0.5]


def test_even_blocks_and_grids_of_two_axes_stay_even() -> None:
    even = Counts("k", shared_loads=100.0)
    assert uneven(even, even, launch(1, 4), launch(1, 2), launch(48, 8), 48, first=1.01) == even
    assert uneven(even, even, launch(4, 4), launch(2, 2), launch(8, 8), 1, first=1.6) == even


def test_flops_and_bytes() -> None:
    found = Counts("k", fp32=10.0, special=2.0, tensor=3.0, sectors_loaded=4.0, sectors_stored=1.0)
    assert found.flops == 12 + 3 * MMA_FLOPS == 12 + 3 * 4096
    assert found.sector_bytes == 160
    assert found.times(3).sectors_loaded == 12
    assert Counts(**found.to_json()) == found
    assert replace(found, fp32=0.0).to_json().keys() == {"kernel", "special", "tensor", "sectors_loaded",
                                                        "sectors_stored", "first"}  # fmt: skip


def test_blocks_over_blocks() -> None:
    assert grid_ratio([launch(48, 8), launch(6)], [launch(4, 8), launch(3)]) == [12.0, 2.0]
