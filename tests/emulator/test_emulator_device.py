"""The emulator as a device: arguments, buffers, limits, builds."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.core.errors import BuildError, CompileError, LaunchError
from autotune.core.plan import Arg, Buffer, Dim3, Launch, LaunchPlan, PointerArg, ScalarArg, ViewArg, Zero
from autotune.devices.emulated import CpuDevice
from autotune.devices.protocol import TimingBudget
from autotune.emulator.building import build_emulator
from autotune.emulator.library import EmulatorLibrary
from tests.emulator.emulating import SPEC, build, floats, ints, run
from tests.sources import kernel_source

CODE = r"""
template <class T, int N> struct View { T* data; long long stride[N]; };
extern "C" __global__ void arguments(
    float* out, int i, View<const float, 3> a, float f, long long big, int j, View<float, 1> b, int k)
{
    out[0] = i, out[1] = f, out[2] = big == (1ll << 40) + 5, out[3] = j, out[4] = k;
    out[5] = a.data[2 * a.stride[0] + a.stride[1] + 3 * a.stride[2]];
    b.data[b.stride[0]] = 42.0f;
}
extern "C" __global__ void add_one(float* x) { x[threadIdx.x] += 1.0f; }
extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }
extern "C" __global__ void nothing(float* x) {}
"""


@pytest.fixture
def device() -> CpuDevice:
    return CpuDevice(SPEC, 2)


def launch(kernel: str, smem: int = 0, block: Dim3 = (4, 1, 1), grid: Dim3 = (1, 1, 1)) -> Launch:
    return Launch(kernel, grid, block, smem, (PointerArg("x", "x", 0, "fp32", "output"),))


X = Buffer("x", "fp32", 4, "output")


def test_arguments_arrive_at_their_natural_alignment(device: CpuDevice) -> None:
    buffers = (Buffer("out", "fp32", 6, "output"), Buffer("a", "fp32", 100, "input"), Buffer("b", "fp32", 9, "output"))
    args: tuple[Arg, ...] = (
        PointerArg("out", "out", 0, "fp32", "output"), ScalarArg("i", "int", -7),
        ViewArg("a.view", "a", 10, "fp32", (20, 5, 1), "input"), ScalarArg("f", "float", 0.75),
        ScalarArg("big", "long long", (1 << 40) + 5), ScalarArg("j", "int", 11),
        ViewArg("b.view", "b", 1, "fp32", (6,), "output"), ScalarArg("k", "int", 13),
    )  # fmt: skip
    plan = LaunchPlan(buffers, (Launch("arguments", (1, 1, 1), (1, 1, 1), 0, args),))
    device.allocate(buffers)
    device.upload("a", np.arange(100, dtype=np.float32))
    device.poison("b")
    device.run(device.load(build(CODE), plan), plan)
    np.testing.assert_array_equal(device.download("out"), [-7, 0.75, 1, 11, 13, 10 + 2 * 20 + 5 + 3])
    b = device.download("b")
    assert b[7] == 42.0
    assert np.isnan(np.delete(b, 7)).all()


def test_a_launch_with_other_arguments_than_the_kernel_has(device: CpuDevice) -> None:
    buffers = (X,)
    plan = LaunchPlan(buffers, (replace(launch("add_one"), args=(*launch("add_one").args, ScalarArg("i", "int", 1))),))
    device.allocate(buffers)
    with pytest.raises(LaunchError, match="kernel add_one takes 8 bytes of arguments, its launch passes 12"):
        device.run(device.load(build(CODE), plan), plan)


def test_steps_run_in_their_order(device: CpuDevice) -> None:
    device.allocate((X,))
    device.poison("x")
    plan = LaunchPlan((X,), (Zero("x"), launch("add_one"), launch("twice"), launch("add_one")))
    program = device.load(build(CODE), plan)
    for _ in range(2):
        device.run(program, plan)
        np.testing.assert_array_equal(device.download("x"), [3, 3, 3, 3])
    only_zero = LaunchPlan((X,), (Zero("x"),))
    device.run(program, only_zero)
    np.testing.assert_array_equal(device.download("x"), 0)
    device.run(program, LaunchPlan((X,), ()))


def test_buffers_are_kept_or_made_anew(device: CpuDevice) -> None:
    y = Buffer("y", "bf16", 3, "input")
    device.allocate((X, y))
    assert np.isnan(device.download("x")).all()
    device.upload("x", np.arange(4, dtype=np.float32))
    device.allocate((X,))
    np.testing.assert_array_equal(device.download("x"), np.arange(4))
    with pytest.raises(LaunchError, match="no buffer y; there are x"):
        device.download("y")
    device.allocate((replace(X, elements=5),))
    assert np.isnan(device.download("x")).all()
    device.close()
    with pytest.raises(LaunchError, match="there are none"):
        device.upload("x", np.zeros(5, np.float32))


@pytest.mark.parametrize("data", [np.zeros(5, np.float32), np.zeros(4, np.float64), np.zeros((2, 2), np.float32)])
def test_an_upload_must_fit(device: CpuDevice, data: NDArray[Any]) -> None:
    device.allocate((X,))
    with pytest.raises(LaunchError, match="buffer x holds 4 fp32"):
        device.upload("x", data)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
def test_poison_is_nan_in_every_floating_type(device: CpuDevice, dtype: str) -> None:
    device.allocate((Buffer("x", dtype, 7, "output"),))
    device.run(device.load(build(CODE), LaunchPlan((), ())), LaunchPlan((), (Zero("x"),)))
    assert (device.download("x") == 0).all()
    device.poison("x")
    assert np.isnan(device.download("x").astype(np.float64)).all()


def test_downloads_are_copies_and_survive(device: CpuDevice) -> None:
    device.allocate((X,))
    data = device.download("x")
    device.close()
    assert np.isnan(data).all()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (launch("nothing", smem=300000), "asks for 300000 bytes of shared memory; NVIDIA H200 allows 232448"),
        (launch("nothing", block=(64, 32, 1)), "asks for 2048 threads a block; NVIDIA H200 allows 1024"),
        (launch("nothing", grid=(4, 0, 1)), r"grid \(4, 0, 1\) or block \(4, 1, 1\) is empty"),
    ],
)
def test_the_gpus_limits_hold(device: CpuDevice, step: Launch, said: str) -> None:
    with pytest.raises(LaunchError, match=f"kernel nothing.*{said}"):
        device.load(build(CODE), LaunchPlan((X,), (step,)))


def test_a_cubin_is_refused(device: CpuDevice) -> None:
    artifact = Artifact("cubin", Path("x"), Path("x"), "", "", (), "nvcc", 0.0, cached=True)
    with pytest.raises(LaunchError, match="cannot run a cubin"):
        device.load(artifact, LaunchPlan((), ()))


def test_two_binaries_with_kernels_and_variables_of_one_name(device: CpuDevice) -> None:
    code = """__device__ int calls;
    template <int N> __device__ float* scratch() {{ __shared__ float memory[N]; return memory; }}
    extern "C" __global__ void count(float* x)
    {{
        scratch<{0}>()[threadIdx.x] = {0};
        if (threadIdx.x == 0) x[0] = ++calls + scratch<{0}>()[0];
    }}"""
    plan = LaunchPlan((X,), (launch("count"),))
    device.allocate((X,))
    programs = [device.load(build(code.format(n)), plan) for n in (100, 20000)]
    for program, expected in ((0, 101), (1, 20001), (0, 102), (1, 20002)):
        device.run(programs[program], plan)
        assert device.download("x")[0] == expected


def test_times_are_labelled_as_no_gpu_times(device: CpuDevice) -> None:
    device.allocate((X,))
    plan = LaunchPlan((X,), (launch("nothing"),))
    timing = device.time(device.load(build(CODE), plan), plan, TimingBudget(max_repeats=9))
    assert (timing.kind, timing.method) == ("estimated", "emulator wall clock (not a GPU time)")
    assert 0 < timing.min_ms <= timing.median_ms
    assert device.identity.name == "cpu:h200"
    assert "NVIDIA H200" in device.environment()["device"]


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    code = 'extern "C" __global__ void id(int* out) { out[blockIdx.x] = blockIdx.x; }'
    for threads in (1, 3, 8):
        out = run(code, "id", {"out": ints(100)}, grid=(100, 1, 1), block=(1, 1, 1), device=CpuDevice(SPEC, threads))
        np.testing.assert_array_equal(out["out"], np.arange(100))


def test_a_source_that_does_not_compile(tmp_path: Path) -> None:
    source = kernel_source('extern "C" __global__ void broken(float* x)\n{\n    x[0] = undefined_name;\n}\n')
    for _ in range(2):  # built, then remembered
        with pytest.raises(CompileError, match=r"kernel.cu:4:\d+: error: .undefined_name. was not declared"):
            build_emulator(source, BuildCache())


def test_a_plan_that_names_a_missing_kernel() -> None:
    plan = LaunchPlan((X,), (launch("absent"),))
    with pytest.raises(CompileError, match="absent"):
        build_emulator(kernel_source("// nothing here\n", plan=plan), BuildCache())


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match=r"install g\+\+"):
        build_emulator(kernel_source("// unbuilt\n"), BuildCache(tmp_path / "cache"))


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="AUTOTUNE_CACHE"):
        build_emulator(kernel_source("// unbuilt\n"), BuildCache(tmp_path / "file"))


_PORTABLE = """
import sys
import numpy as np
from pathlib import Path
import autotune.emulator.support as support
from autotune.compilers.cache import BuildCache
support._FLAGS += ("-DAUTOTUNE_EMULATOR_UCONTEXT",)
support._processor_flags = lambda: ()
import tests.emulator.emulating as emulating
emulating.BuildCache = lambda: BuildCache(Path(sys.argv[1]))
import tests.emulator.test_emulator_block as block
import tests.emulator.test_emulator_arithmetic as arithmetic
block.test_a_block_adds_up()
block.test_a_barrier_in_a_loop_with_1024_threads()
block.test_threads_at_different_places_are_a_deadlock()
arithmetic.test_every_half_widens_exactly()
arithmetic.test_floats_narrow_to_half_in_every_rounding_mode()
print("all right")
"""


def test_without_the_processors_own_switch_and_conversions(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PORTABLE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "all right\n", done.stderr


def test_room_for_results_is_not_what_a_test_expects() -> None:
    assert floats(1)[0] == -77.5


def test_what_the_system_refuses_for_where_it_lies_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="No such file"):
        EmulatorLibrary(tmp_path / "deleted.so")
    (tmp_path / "kernel.so").write_bytes(b"no library at all")
    with pytest.raises(LaunchError, match="cannot load"):
        EmulatorLibrary(tmp_path / "kernel.so")
