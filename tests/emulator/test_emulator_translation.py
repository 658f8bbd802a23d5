"""What is rewritten before g++ sees a kernel, and what is not."""

import pytest

from autotune.emulator.translation import for_tracing, kernel_table, translate, unroll_products


def translated(code: str) -> str:
    first, rest = translate(code, "kernel.cu").split("\n", 1)
    assert first == '#line 1 "kernel.cu"'
    return rest


@pytest.mark.parametrize(
    ("declaration", "pointer", "target"),
    [
        ("extern __shared__ float x[];", "float* const x", "float*"),
        ("extern __shared__ __align__(16) unsigned char smem[];", "unsigned char* const smem", "unsigned char*"),
        ("extern __shared__ alignas(128) char smem[ ];", "char* const smem", "char*"),
        ("extern __align__(16) __shared__ char smem[];", "char* const smem", "char*"),
        ("extern __shared__ alignas(alignof(float4)) float4 t[];", "float4* const t", "float4*"),
        ("extern __shared__ Pair<int, float> pairs[];", "Pair<int, float>* const pairs", "Pair<int, float>*"),
        ("extern __shared__ std::uint8_t raw[];", "std::uint8_t* const raw", "std::uint8_t*"),
        ("extern  __shared__  volatile float x[][33];", "volatile float (* const x)[33]", "volatile float (*)[33]"),
        ("extern __shared__ float x[][N][M + 1];", "float (* const x)[N][M + 1]", "float (*)[N][M + 1]"),
    ],
)
def test_dynamic_shared_arrays_become_pointers(declaration: str, pointer: str, target: str) -> None:
    expected = f"{pointer} = reinterpret_cast<{target}>(::emulator::dynamic_shared());"
    assert translated(f"void f() {{\n    {declaration} // why\n}}\n") == f"void f() {{\n    {expected} // why\n}}\n"


def test_outside_of_functions_a_macro_asks_for_the_memory_when_used() -> None:
    code = 'extern "C" {\nnamespace a::b {\nextern __shared__ float x[];\nvoid f() { x[0] = 1; }\n}}\n'
    expected = "#define x (reinterpret_cast<float*>(::emulator::dynamic_shared()))\n#line 3\n"
    assert expected in translated(code)
    assert translated("struct S { int a; };\nextern __shared__ int y[];").count("#define y") == 1


def test_line_numbers_stay() -> None:
    code = "void f() {\n  extern __shared__\n    float x[];\n  g();\n}\n"
    assert translated(code).splitlines()[3] == "  g();"


def test_comments_and_everything_else_stay() -> None:
    code = (
        "// extern __shared__ float x[];\n/* extern __shared__ float y[]; */\n"
        'const char* s = "extern __shared__ float z[];";\n__shared__ float t[4];\nextern int n;\n#pragma unroll\n'
    )
    assert translated(code) == code


def test_braces_in_comments_and_strings_do_not_count() -> None:
    code = "// {\nconst char* s = \"{\";\nchar c = '{';\nextern __shared__ int x[];\n"
    assert "#define x" in translated(code)


def test_every_kernel_is_in_the_table() -> None:
    table = kernel_table(("one", "check::two"), 128)
    assert '::emulator::entry<&one>("one"), ::emulator::entry<&check::two>("check::two"), {}}' in table


PRODUCTS = """
template <class T>
inline void multiply(Lane* const lanes[32]) { lanes[0]->d = 1; }
#pragma unroll
for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) { acc[i][j] += x[i] * y[j]; }
#pragma unroll
for (int i = 0; i < M; ++i) sum = fmaxf(sum, x[i]);
#pragma unroll 1
for (int i = 0; i < M; ++i) sum += x[i] * y[i];
"""


def test_what_tracing_changes() -> None:
    changed = for_tracing(PRODUCTS)
    assert changed.splitlines()[2] == (
        "EMULATOR_UNTRACED inline void multiply(Lane* const lanes[32]) { lanes[0]->d = 1; }"
    )
    assert changed.replace("EMULATOR_UNTRACED ", "") == PRODUCTS


def test_products_are_unrolled() -> None:
    lines = unroll_products(PRODUCTS).splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "#pragma unroll", "#pragma GCC unroll 8", "#pragma unroll", "#pragma unroll 1",
    ]  # fmt: skip
    assert len(lines) == len(PRODUCTS.splitlines())
