"""The hash of machine code: what it does not see, and that it sees everything else."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compilers.machine_code import machine_code
from autotune.compilers.nvcc import ARCHITECTURES
from autotune.compilers.toolchain import find_nvcc
from autotune.core.errors import BuildError
from autotune.core.plan import Buffer, Launch, LaunchPlan, PointerArg, ScalarArg, Zero

# Two kernels, a function that is called, variables with and without values, constants, text, shared memory.
CODE = """\
#include <cstdio>
namespace { __device__ int counter; }
namespace { __device__ float weights[3] = {5, 6, 7}; __constant__ float table[4] = {1, 2, 3, 4}; }
struct Pair { float x; __device__ __noinline__ float twice(float y) { return x * y * 2 + sinf(y); } };
extern "C" __global__ void __launch_bounds__(128) first(float* out, const float* in, int n) {
    __shared__ float tile[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    tile[threadIdx.x] = in[i];
    __syncthreads();
    Pair pair{table[i & 3]};
    out[i] = pair.twice(tile[threadIdx.x ^ 1]) + weights[n % 3];
    atomicAdd(&counter, 1);
}
extern "C" __global__ void second(float* out, int n) {
    out[threadIdx.x] = float(1.0 / double(out[threadIdx.x])) / n;
    if (n > 1000) printf("much %d\\n", n);
}
"""
RENAMED = {
    "counter": "tally", "table": "lookup", "weights": "addends", "Pair": "Couple", "pair": "couple", "twice": "doubled",
    "tile": "part_of_a_row", "first": "zeroth", "tally": "tally /* and counted */",
}  # fmt: skip
POINTER = PointerArg("out", "out", 0, "fp32", "output")
SPACE = PointerArg("sums", "sums", 0, "fp32", "workspace")


def plan(*kernels: str, workspace: str = "sums") -> LaunchPlan:
    """Both kernels, after a workspace has been set to zero."""
    scratch = PointerArg(workspace, workspace, 0, "fp32", "workspace")
    args = (POINTER, scratch, ScalarArg("T", "int", 7))
    buffers = (Buffer("out", "fp32", 128, "output"), Buffer(workspace, "fp32", 64, "workspace"))
    launches = tuple(Launch(kernel, (4, 1, 1), (128, 1, 1), 512, args) for kernel in kernels)
    return LaunchPlan(buffers, (Zero(workspace), *launches))


BOTH = plan("first", "second")


def build(code: str, folder: Path, arch: str = "sm_90a", *options: str) -> Path:
    folder.mkdir()
    (folder / "kernel.cu").write_text(code)
    command = [str(find_nvcc(arch).path), "-cubin", f"-arch={arch}", "-O3", "-std=c++17", *options, "kernel.cu"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "kernel.cubin"


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(CODE, tmp_path_factory.mktemp("code") / "a")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_names_comments_and_lines_are_not_in_it(arch: str, tmp_path: Path) -> None:
    renamed = CODE
    for old, new in RENAMED.items():
        renamed = renamed.replace(old, new)
    one = build(CODE, tmp_path / "one", arch)
    two = build("// another comment\n\n" + renamed, tmp_path / "two", arch, "-lineinfo")
    assert one.read_bytes() != two.read_bytes()
    assert machine_code(one, BOTH) == machine_code(two, plan("zeroth", "second", workspace="scratch"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * y * 2", "x * y * 3"),  # a constant in an instruction
        ("{1, 2, 3, 4}", "{1, 2, 3, 5}"),  # __constant__ memory
        ("{5, 6, 7}", "{5, 6, 8}"),  # the value that a variable begins with
        ("__launch_bounds__(128)", "__launch_bounds__(256)"),  # what a launch may ask for
        ("float tile[128]", "float tile[256]"),  # static shared memory
        ("much %d", "mach %d"),
        ("int n) {\n    out", "int n, int m) {\n    out"),  # a parameter that nothing reads
        ("out[i] =", "if (n > 0) out[i] ="),
        ("weights[n % 3]", "table[n % 3]"),
    ],
)
def test_whatever_is_executed_is_in_it(cubin: Path, tmp_path: Path, old: str, new: str) -> None:
    assert CODE.count(old) == 1
    changed = build(CODE.replace(old, new), tmp_path / "changed")
    assert machine_code(changed, BOTH) != machine_code(cubin, BOTH)


def test_registers_are_in_it(cubin: Path, tmp_path: Path) -> None:
    """Two ways to fewer: in the instructions as well, or just what a launch reserves."""
    assert machine_code(build(CODE, tmp_path / "few", "sm_90a", "-maxrregcount=16"), BOTH) != machine_code(cubin, BOTH)
    assert machine_code(build(CODE, tmp_path / "other", "sm_80"), BOTH) != machine_code(cubin, BOTH)


def launches(plan: LaunchPlan) -> Iterator[LaunchPlan]:
    zero, first, second = plan.steps
    assert isinstance(first, Launch)
    assert isinstance(second, Launch)
    yield replace(plan, steps=(zero, second, first))
    yield replace(plan, steps=(first, zero, second))
    yield replace(plan, steps=(first, second))
    yield replace(plan, steps=(zero, first, second, second))
    for changed in (
        replace(first, grid=(8, 1, 1)), replace(first, block=(64, 1, 1)), replace(first, smem=0),
        replace(first, args=(SPACE, POINTER, first.args[2])), replace(first, args=(*first.args[:2], length(8))),
        replace(first, args=(replace(POINTER, offset=1), *first.args[1:])),
    ):  # fmt: skip
        yield replace(plan, steps=(zero, changed, second))
    yield replace(plan, buffers=(plan.buffers[0], replace(plan.buffers[1], elements=65)))


def length(value: int) -> ScalarArg:
    return ScalarArg("T", "int", value)


def test_how_it_is_launched_is_in_it(cubin: Path) -> None:
    hashes = [machine_code(cubin, BOTH), *(machine_code(cubin, changed) for changed in launches(BOTH))]
    assert len(set(hashes)) == len(hashes)


def test_damaged_cubins_are_errors_that_name_the_file(cubin: Path, tmp_path: Path) -> None:
    """Cut anywhere, or with any byte of its tables of sections and symbols changed: an error, or some hash."""
    whole = cubin.read_bytes()
    damaged = Path(shutil.copy(cubin, tmp_path / "damaged.cubin"))
    for length in [*range(0, 64, 7), *range(64, len(whole), 997)]:
        damaged.write_bytes(whole[:length])
        with pytest.raises(BuildError, match=r"cannot read the machine code of .*damaged\.cubin: \w"):
            machine_code(damaged, BOTH)
    for place in range(0, len(whole), 37):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert len(machine_code(damaged, BOTH)) == 32
        except BuildError as error:
            assert "damaged.cubin" in str(error)  # noqa: PT017 - either may come


def test_what_is_no_cubin_is_said(cubin: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("SASS")
    with pytest.raises(BuildError, match=r"cannot read the machine code of .*text: not a 64-bit ELF file"):
        machine_code(tmp_path / "text", BOTH)
    with pytest.raises(BuildError, match=r"cannot read the machine code of .*none: .*No such file"):
        machine_code(tmp_path / "none", BOTH)
    with pytest.raises(BuildError, match=r"it has no kernel third, only second, first"):
        machine_code(cubin, plan("first", "third"))
