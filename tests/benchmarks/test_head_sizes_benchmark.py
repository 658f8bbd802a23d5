"""The benchmark of head sizes that are no tile's width: what it compares, without a GPU."""

import pytest

from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from benchmarks.head_sizes import SIZES, families, next_width, problems, ratio


@pytest.mark.parametrize(("HS", "width"), [(8, 32), (72, 96), (80, 96), (128, 128), (136, 160), (248, 256)])
def test_the_next_width_is_that_of_tiles(HS: int, width: int) -> None:
    problem = get_op("backward").problem(B=2, NH=6, T=77, HS=HS, dtype="bf16", causal=False)
    assert next_width(problem) == problem.replace(HS=width)


def test_every_size_is_beside_its_width_in_every_family() -> None:
    """A timer that says the head size shows whose times are compared."""
    spec = gpu("h200")
    for problem in problems((80,)):
        names = list(families(problem, spec))
        assert names[0] is None
        assert len(names) > 1
        for name in names:
            answer, here, there = ratio(problem, name, spec, lambda found: float(found.problem.integer("HS")))
            assert name in (None, answer)
            assert (here, there) == (80.0, 96.0)
    assert {problem.integer("HS") for problem in problems(SIZES)} == set(SIZES)
