"""The benchmark of head sizes that are no tile's width: what it compares, without a GPU."""

import pytest

from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from benchmarks.head_sizes import SIZES, families, next_width, problems, ratio


@pytest.mark.parametrize(("HS", "width"), [(8, 32), (33, 64), (72, 96), (75, 96), (128, 128), (136, 160), (248, 256)])
def test_the_next_width_is_that_of_tiles(HS: int, width: int) -> None:
    problem = get_op("backward").problem(B=2, NH=6, T=77, HS=HS, dtype="bf16", causal=False)
    assert next_width(problem) == problem.replace(HS=width)


@pytest.mark.parametrize("HS", [75, 80])
def test_every_size_is_beside_its_width_in_every_family(HS: int) -> None:
    """A timer that says the head size shows whose times are compared. Look-ups answer with a family on tensor cores."""
    spec = gpu("h200")
    for problem in problems((HS,)):
        names = list(families(problem, spec))
        assert names[0] is None
        assert len(names) > 1
        for name in names:
            answer, here, there = ratio(problem, name, spec, lambda found: float(found.problem.integer("HS")))
            assert answer == (name or answer)
            assert find_template(problem.op, answer).front.tensor_cores
            assert (here, there) == (HS, 96.0)


def test_sizes_are_those_that_are_named() -> None:
    assert {problem.integer("HS") for problem in problems(SIZES)} == set(SIZES)
