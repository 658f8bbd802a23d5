"""Parameters of kernels, read from source text."""

import pytest

from autotune.families.cpp_parameters import kernels_in, parameter_lists
from autotune.families.source import Include

DECLARED = {
    "const float* __restrict__ x": ("const float*", "a pointer"),
    "const\n  float *x": ("const float *", "a pointer"),
    "float x[]": ("float*", "a pointer"),
    "float*": ("float*", "a pointer"),
    "View<const Pair<T, 2>, 4> q": ("View<const Pair<T, 2>, 4>", "a View"),
    "View<float, 2>* views": ("View<float, 2>*", "unknown"),
    "int n": ("int", "int"),
    "const unsigned int": ("const unsigned int", "int"),
    "long long": ("long long", "long long"),
    "std::int64_t n": ("std::int64_t", "long long"),
    "float": ("float", "float"),
    "const index_t": ("const index_t", "unknown"),
    "const __grid_constant__ Anything map": ("const Anything", "unknown"),
}


@pytest.mark.parametrize("text", DECLARED)
def test_type_and_kind(text: str) -> None:
    [[first, second]] = kernels_in(f"__global__ void k({text}, int /* , */ last) {{ k2(1); }}")["k"]
    assert (first.type, first.kind) == DECLARED[text]
    assert second.type == "int"


def test_the_body_comes_before_its_headers() -> None:
    header = Include("common/k.cuh", "__global__ void k(int a);\n__global__ void other(float b);")
    body = "// __global__ void other(int b)\n__global__ __launch_bounds__(min(1, 2)) void k(void) {}\nvoid k2(int a) {}"
    assert parameter_lists("k", body, [header]) == ((),)
    [[parameter]] = parameter_lists("other", body, [header])
    assert parameter.type == "float"
    assert parameter_lists("k2", body, [header]) == ()
