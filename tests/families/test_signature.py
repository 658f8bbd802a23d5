"""Launches and kernels must agree, as far as the source tells."""

import struct
from collections.abc import Sequence

import pytest

from autotune.core.errors import TemplateError
from autotune.core.plan import Arg, Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, ViewArg, Zero, pack_arguments
from autotune.families.signature import agreed
from autotune.families.source import Include

X = PointerArg("x", "x", 0, "fp32", "input")
Q = ViewArg("q", "q", 0, "fp32", (8, 1), "input")
N = ScalarArg("n", "int", 7)
BIG = ScalarArg("n * n", "long long", 2**40)
EPS = ScalarArg("eps", "float", 0.5)


def plan(args: Sequence[Arg], kernel: str = "copy") -> LaunchPlan:
    launch = Launch(kernel, (1, 1, 1), (32, 1, 1), 0, tuple(args))
    return LaunchPlan((Buffer("x", "fp32", 8, "output"),), (Zero("x"), launch))


def kernel(parameters: str, attributes: str = "") -> str:
    return (
        f'// copy(int)\nextern "C" __global__ void {attributes}\ncopy({parameters})\n{{\n    if (true) helper();\n}}\n'
    )


@pytest.mark.parametrize(
    ("parameters", "args"),
    [
        ("const float* x, int n", (X, N)),
        ("const float* __restrict__ x, /* (a, b) */ const int n", (X, N)),
        ("View<const element, 2> q, long long n, float eps", (Q, BIG, EPS)),
        ("const __grid_constant__ View<Pair<int, 2>, 2> q", (Q,)),
        ("float x[], unsigned n", (X, N)),
        ("unsigned int, std::int64_t n", (N, BIG)),
        ("index_t n, Anything<3> x, scalar eps", (N, X, EPS)),
        ("", ()),
        ("void", ()),
    ],
)
@pytest.mark.parametrize("attributes", ["", "__launch_bounds__(ceil(3, 4), 2)", "__cluster_dims__(2)"])
def test_what_agrees_is_left_alone(parameters: str, args: tuple[Arg, ...], attributes: str) -> None:
    given = plan(args)
    assert agreed("t", kernel(parameters, attributes), (), given) is given


def test_numbers_are_widened() -> None:
    [launch] = agreed("t", kernel("const float* x, long long n, double eps"), (), plan((X, N, EPS))).launches
    assert launch.args == (X, ScalarArg("n", "long long", 7), ScalarArg("eps", "double", 0.5))
    assert pack_arguments(launch.args[1:], {}) == struct.pack("<qd", 7, 0.5)


@pytest.mark.parametrize(
    ("parameters", "args", "said"),
    [
        (
            "float* x, float rows",
            (X, N),
            r"takes float as parameter 2, its launch passes 'n', int; write it as 1\.0 \*",
        ),
        ("float* x, int n", (X, EPS), "takes int as parameter 2, its launch passes 'eps', float"),
        ("float* x, int n", (X, BIG), r"takes int as parameter 2, its launch passes 'n \* n', long long"),
        ("float* q", (Q,), r"takes a pointer as parameter 1, its launch passes 'q\.view', a View"),
        ("View<float, 2> x", (X,), "takes a View as parameter 1, its launch passes 'x', a pointer"),
        ("int n, float* x", (X, N), "takes int as parameter 1, its launch passes 'x', a pointer"),
        ("float* x", (X, N), "takes 1 parameters, its launch passes 2"),
        ("double n", (N,), r"takes double as parameter 1, its launch passes 'n', int; write it as 1\.0 \*"),
        ("bool n", (N,), "takes a number of less than 4 bytes as parameter 1, its launch passes 'n', int"),
        ("const unsigned char n", (N,), "takes a number of less than 4 bytes as parameter 1"),
        ("void", (N,), "takes 0 parameters, its launch passes 1"),
    ],
)
def test_what_does_not_agree_is_the_templates_error(parameters: str, args: tuple[Arg, ...], said: str) -> None:
    with pytest.raises(TemplateError, match=f"^my.cu.j2: kernel copy {said}"):
        agreed("my.cu.j2", kernel(parameters), (), plan(args))


def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(
        TemplateError, match=r"names kernel 'paste', which the source does not define; it defines copy$"
    ):
        agreed("my.cu.j2", kernel("int n"), (), plan((N,), "paste"))
    with pytest.raises(TemplateError, match=r"names kernel 'helper'"):  # called, not defined
        agreed("my.cu.j2", kernel("int n"), (), plan((N,), "helper"))
    with pytest.raises(TemplateError, match='kernel copy must be extern "C"'):
        agreed("my.cu.j2", kernel("int n").replace('extern "C" ', ""), (), plan((N,)))


def test_kernels_of_headers_and_macros() -> None:
    header = Include("mine.cuh", kernel("float* x"))
    assert agreed("t", "", (header,), plan((X,))) == plan((X,))
    with pytest.raises(TemplateError, match="takes a pointer"):
        agreed("t", "", (header,), plan((N,)))
    macro = '#define KERNEL(name) \\\n  extern "C" __global__ void name(int n) {}\nKERNEL(copy)\n'
    assert agreed("t", macro, (), plan((X,))) == plan((X,))


def test_one_of_several_definitions_is_enough() -> None:
    twins = f"#ifdef A\n{kernel('int n')}#else\n{kernel('float eps')}#endif\n"
    for arg in (N, EPS):
        assert agreed("t", twins, (), plan((arg,))) == plan((arg,))
