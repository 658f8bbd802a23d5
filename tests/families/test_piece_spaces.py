"""Spaces of the families of `matmul`, `softmax` and `softmax_backward`."""

from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.known import gpu
from tests.every_family import each_family_of, supported


@each_family_of("matmul", "softmax", "softmax_backward")
def test_every_problem_has_configurations(family: Template) -> None:
    """On the smallest and the largest GPU, however small or odd the shape."""
    sizes = ("M", "N", "K") if family.op == "matmul" else ("T", "T_kv")
    for name in ("t4", "h200"):
        for length in (1, 13, 1000):
            problem = supported(family, {"dtype": "fp16", **dict.fromkeys(sizes, length)}, gpu(name))
            assert Space(family, problem, gpu(name)).size > 50
