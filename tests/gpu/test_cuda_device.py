import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import DeviceMissing, LaunchError
from autotune.core.plan import Arg, Buffer, Dim3, Launch, LaunchPlan, PointerArg, ScalarArg, Step, ViewArg, Zero
from autotune.devices.cuda import CudaDevice
from autotune.devices.protocol import TimingBudget
from autotune.estimate.occupancy import occupancy, static_failure
from autotune.gpus.present import driver_version, present_gpu
from tests.sources import kernel_source

pytestmark = pytest.mark.gpu

BODY = """\
template <class T, int N> struct View { T* data; long long stride[N]; };

// out[r] = scale * sum over c of in(r, c): a view by value between scalars, to test how arguments are laid out.
extern "C" __global__ void rowsum(int rows, View<float, 2> in, int columns, float scale, float* out, long long skip) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.0f;
    for (int c = 0; c < columns; ++c) sum += in.data[r * in.stride[0] + c * in.stride[1]];
    out[r + skip] = scale * sum;
}

// Reverses n floats through dynamic shared memory.
extern "C" __global__ void reverse(const float* in, float* out, int n) {
    extern __shared__ __align__(16) unsigned char smem[];
    float* row = reinterpret_cast<float*>(smem);
    for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = in[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = row[n - 1 - i];
}

extern "C" __global__ void accumulate(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&out[i], 1.0f);
}

extern "C" __global__ void wild(float* out) { out[1LL << 40] = 1.0f; }

extern "C" __global__ void copy(const float4* in, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

extern "C" __global__ void __launch_bounds__(1024) fat(float* out, int n) {
    float x[48];
    for (int i = 0; i < 48; ++i) x[i] = out[i * n];
    for (int k = 0; k < n; ++k)
        for (int i = 0; i < 48; ++i) x[i] = x[i] * x[(i + 7) % 48] + 1.0f;
    for (int i = 0; i < 48; ++i) out[i * n] = x[i];
}
"""


def show(text: str) -> None:
    print(text)  # noqa: T201 - figures to read, which no test may assert


def pointer(name: str, offset: int = 0) -> PointerArg:
    return PointerArg(name, name, offset, "fp32", "input")


def integer(value: int) -> ScalarArg:
    return ScalarArg("n", "int", value)


def buffers(**elements: int) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, "fp32", count, "output") for name, count in elements.items())


def launch(kernel: str, *args: Arg, grid: Dim3 = (1, 1, 1), threads: int = 128, smem: int = 0) -> Launch:
    return Launch(kernel, grid, (threads, 1, 1), smem, args)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    spec = present_gpu()
    assert spec is not None
    return build_cubin(kernel_source(BODY), spec.arch, BuildCache(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    found = CudaDevice(0)
    yield found
    found.close()


def test_identity_and_environment(device: CudaDevice) -> None:
    spec = device.identity.spec
    show(f"\n{spec}")
    assert device.identity.name == spec.name
    assert spec == present_gpu()
    assert spec.sm_count > 0
    assert spec.max_shared_memory >= 48 * 1024
    environment = device.environment()
    show(str(dict(environment)))
    assert environment["device"] == spec.title
    assert environment["cuda"] == driver_version()
    assert environment["driver"].count(".") >= 1


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(DeviceMissing, match="no NVIDIA GPU with index 99: the driver shows"):
        CudaDevice(99)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64", "int32"])
def test_upload_and_download(device: CudaDevice, dtype: str) -> None:
    device.allocate((Buffer("a", dtype, 1001, "input"),))
    data = np.arange(1001).astype(numpy_dtype(dtype))
    device.upload("a", data)
    back = device.download("a")
    assert back.dtype == data.dtype
    assert back.tobytes() == data.tobytes()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_poison_is_nan_in_every_element(device: CudaDevice, dtype: str) -> None:
    device.allocate((Buffer("a", dtype, 1001, "output"),))
    device.poison("a")
    assert np.isnan(device.download("a").astype(np.float32)).all()


@pytest.mark.parametrize("elements", [0, 1, 1001, (16 << 20) // 4, (80 << 20) // 4 + 3])
def test_contents_are_compared_bit_for_bit(device: CudaDevice, elements: int) -> None:
    device.allocate(buffers(a=elements))
    data = np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    device.upload("a", data)
    assert device.equals("a", data)
    assert device.download("a").tobytes() == data.tobytes()
    assert not device.equals("a", np.append(data, np.float32(0)))
    for at in {0, elements // 2, elements - 1} if elements else ():
        other = data.copy()
        other[at] = -other[at]
        assert not device.equals("a", other)
    device.poison("a", 0x55)
    assert (device.download("a").view(np.uint8) == 0x55).all()


def test_allocation_keeps_what_is_unchanged(device: CudaDevice) -> None:
    device.allocate(buffers(a=16, b=16))
    device.upload("a", np.arange(16, dtype=np.float32))
    device.allocate(buffers(a=16, c=4))
    assert device.download("a").tolist() == list(range(16))
    with pytest.raises(LaunchError, match="there is no buffer 'b'; allocated: a, c"):
        device.download("b")
    device.allocate(buffers(a=0))
    assert device.download("a").shape == (0,)


def test_an_upload_that_does_not_fit(device: CudaDevice) -> None:
    device.allocate(buffers(a=16))
    with pytest.raises(LaunchError, match=r"buffer a holds 16 fp32, got \(15,\) float32"):
        device.upload("a", np.zeros(15, np.float32))
    with pytest.raises(LaunchError, match=r"buffer a holds 16 fp32, got \(16,\) float64"):
        device.upload("a", np.zeros(16))


def test_more_memory_than_there_is(device: CudaDevice) -> None:
    with pytest.raises(LaunchError, match=r"buffer huge needs .* bytes; .* free"):
        device.allocate(buffers(huge=1 << 42))
    device.allocate(buffers(a=16))
    device.poison("a")
    assert np.isnan(device.download("a")).all()


def test_views_and_scalars_by_value(device: CudaDevice, artifact: Artifact) -> None:
    rows, columns = 300, 40
    storage = np.random.default_rng(0).integers(-8, 8, 7 + rows * columns).astype(np.float32)
    matrix = storage[7:].reshape(columns, rows).T  # column-major: strides (1, rows), offset 7
    args: tuple[Arg, ...] = (
        integer(rows), ViewArg("in", "in", 7, "fp32", (1, rows), "input"), integer(columns),
        ScalarArg("scale", "float", 0.5), pointer("out", offset=2), ScalarArg("skip", "long long", 3),
    )  # fmt: skip
    plan = LaunchPlan(buffers(**{"in": storage.size, "out": rows + 6}), (launch("rowsum", *args, grid=(3, 1, 1)),))
    device.allocate(plan.buffers)
    device.upload("in", storage)
    device.poison("out")
    device.run(device.load(artifact, plan), plan)
    out = device.download("out")
    assert out[5 : 5 + rows].tolist() == (0.5 * matrix.sum(axis=1)).tolist()
    assert np.isnan(out[:5]).all()
    assert np.isnan(out[5 + rows :]).all()


def reverse_plan(n: int) -> LaunchPlan:
    step = launch("reverse", pointer("a"), pointer("b"), integer(n), smem=4 * n, threads=256)
    return LaunchPlan(buffers(a=n, b=n), (step,))


@pytest.mark.parametrize("kilobytes", [1, 48, 64, "most"])
def test_dynamic_shared_memory(device: CudaDevice, artifact: Artifact, kilobytes: int | str) -> None:
    most = device.identity.spec.max_shared_memory
    nbytes = most if isinstance(kilobytes, str) else min(kilobytes * 1024, most)
    plan = reverse_plan(nbytes // 4)
    assert static_failure(plan, artifact, device.identity.spec) is None
    device.allocate(plan.buffers)
    device.upload("a", np.arange(nbytes // 4, dtype=np.float32))
    device.poison("b")
    device.run(device.load(artifact, plan), plan)
    assert device.download("b").tolist() == list(range(nbytes // 4))[::-1]


def test_too_much_shared_memory_says_asked_and_available(device: CudaDevice, artifact: Artifact) -> None:
    spec = device.identity.spec
    plan = reverse_plan(spec.max_shared_memory // 4 + 4)
    device.allocate(plan.buffers)
    expected = (
        f"kernel reverse asks for {spec.max_shared_memory + 16} bytes of shared memory; "
        f"{spec.title} allows {spec.max_shared_memory}"
    )
    with pytest.raises(LaunchError) as caught:
        device.load(artifact, plan)
    assert str(caught.value) == expected == static_failure(plan, artifact, spec)


def test_too_many_threads(device: CudaDevice, artifact: Artifact) -> None:
    plan = LaunchPlan(buffers(a=64), (launch("accumulate", pointer("a"), integer(1), threads=1025),))
    device.allocate(plan.buffers)
    with pytest.raises(LaunchError, match=r"kernel accumulate asks for 1025 threads a block; .* allows 1024"):
        device.load(artifact, plan)


def test_steps_run_in_order_and_zero_resets(device: CudaDevice, artifact: Artifact) -> None:
    add = launch("accumulate", pointer("a"), integer(100))
    plan = LaunchPlan(buffers(a=100), (Zero("a"), add, add, add))
    device.allocate(plan.buffers)
    program = device.load(artifact, plan)
    device.poison("a")
    for _ in range(2):
        device.run(program, plan)
        assert device.download("a").tolist() == [3.0] * 100


def test_a_kernel_that_is_not_in_the_binary(device: CudaDevice, artifact: Artifact) -> None:
    plan = LaunchPlan((), (launch("missing"),))
    with pytest.raises(LaunchError, match=r"kernel missing is not in kernel\.cubin"):
        device.load(artifact, plan)


def test_a_file_that_is_no_cubin(device: CudaDevice, artifact: Artifact, tmp_path: Path) -> None:
    broken = Artifact(**{**artifact.__dict__, "path": tmp_path / "broken.cubin"})
    broken.path.write_bytes(b"nonsense")
    with pytest.raises(LaunchError, match=r"cannot load broken\.cubin"):
        device.load(broken, reverse_plan(16))


def test_a_launch_that_the_driver_refuses_leaves_the_device_usable(device: CudaDevice, artifact: Artifact) -> None:
    plan = LaunchPlan(buffers(a=4), (launch("accumulate", pointer("a"), integer(4), grid=(1, 70000, 1)),))
    device.allocate(plan.buffers)
    with pytest.raises(LaunchError, match=r"kernel accumulate: .*invalid argument"):
        device.run(device.load(artifact, plan), plan)
    test_steps_run_in_order_and_zero_resets(device, artifact)


ILLEGAL = """
import pickle, sys
from autotune.devices.cuda import CudaDevice
from autotune.core.errors import LaunchError
artifact, plan = pickle.load(sys.stdin.buffer)
device = CudaDevice(0)
device.allocate(plan.buffers)
program = device.load(artifact, plan)
try:
    device.run(program, plan)
except LaunchError as error:
    print(error)
program.close()
"""  # the device is not closed: ending the process must do, even with a dead context


def test_an_illegal_access_is_reported(artifact: Artifact) -> None:
    import pickle

    plan = LaunchPlan(buffers(a=4), (launch("wild", pointer("a"), threads=1),))
    done = subprocess.run(
        [sys.executable, "-c", ILLEGAL], input=pickle.dumps((artifact, plan)), capture_output=True, check=False
    )
    assert "kernel wild: " in done.stdout.decode()
    assert "illegal memory access" in done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()


def test_time_of_a_copy(device: CudaDevice, artifact: Artifact) -> None:
    n = 64 << 20  # 256 MB each way
    plan = LaunchPlan(
        buffers(a=n, b=n),
        (launch("copy", pointer("a"), pointer("b"), integer(n // 4), grid=(n // 4 // 256, 1, 1), threads=256),),
    )
    device.allocate(plan.buffers)
    device.upload("a", np.random.default_rng(0).random(n, dtype=np.float32))
    program = device.load(artifact, plan)
    timing = device.time(program, plan, TimingBudget())
    show(f"\n{timing}\n{2 * 4 * n / timing.median_ms / 1e6:.0f} GB/s")
    assert (timing.kind, timing.method) == ("measured", "events, L2 flushed")
    assert 0.0 < timing.min_ms <= timing.q1_ms <= timing.median_ms <= timing.q3_ms
    assert timing.repeats >= 7
    assert device.download("b").tobytes() == device.download("a").tobytes()


def test_time_of_a_pipeline_of_tiny_kernels(device: CudaDevice, artifact: Artifact) -> None:
    add = launch("accumulate", pointer("a"), integer(100))
    pipelines: list[tuple[Step, ...]] = [(add,), (Zero("a"), add), (Zero("a"), *[add] * 8)]
    for steps in pipelines:
        plan = LaunchPlan(buffers(a=100), steps)
        device.allocate(plan.buffers)
        timing = device.time(device.load(artifact, plan), plan, TimingBudget(min_repeats=20))
        show(f"\n{len(steps)} steps: {timing.median_ms * 1e3:.2f} us, {timing.repeats} repeats")
        assert timing.median_ms > 0.0
    assert device.download("a").tolist() == [8.0] * 100


def test_a_time_that_cannot_win_is_given_up(device: CudaDevice, artifact: Artifact) -> None:
    plan = LaunchPlan(
        buffers(a=64 * 1000), (launch("fat", pointer("a"), integer(1000), threads=1024, grid=(4096, 1, 1)),)
    )
    device.allocate(plan.buffers)
    device.upload("a", np.zeros(64 * 1000, np.float32))
    timing = device.time(device.load(artifact, plan), plan, TimingBudget(give_up_above_ms=1e-4))
    assert 3 <= timing.repeats <= 10


@pytest.mark.parametrize("kernel", ["rowsum", "reverse", "accumulate", "copy", "fat"])
@pytest.mark.parametrize("threads", [32, 96, 128, 256, 1024])
@pytest.mark.parametrize("smem", [0, 10_000, 48 * 1024, 100_000])
def test_occupancy_agrees_with_the_driver(
    device: CudaDevice, artifact: Artifact, kernel: str, threads: int, smem: int
) -> None:
    spec = device.identity.spec
    if smem > spec.max_shared_memory:
        pytest.skip("more than this GPU has")
    cuda = ctypes.CDLL("libcuda.so.1")
    module, function, blocks = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    assert cuda.cuModuleLoadData(ctypes.byref(module), artifact.path.read_bytes()) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()) == 0
    assert cuda.cuFuncSetAttribute(function, 8, smem) == 0  # MAX_DYNAMIC_SHARED_SIZE_BYTES
    query = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
    assert query(ctypes.byref(blocks), function, threads, ctypes.c_size_t(smem)) == 0
    assert cuda.cuModuleUnload(module) == 0
    report = next(report for report in artifact.kernels if report.kernel == kernel)
    assert occupancy(report.registers, report.static_smem + smem, threads, spec).blocks_per_sm == blocks.value


def test_it_shares_the_gpu_with_pytorch(device: CudaDevice, artifact: Artifact) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    assert torch.ones(8, device="cuda").sum().item() == 8.0
    test_steps_run_in_order_and_zero_resets(device, artifact)
    held = torch.full((100,), 7.0, device="cuda")
    steps = [launch("accumulate", pointer(name), integer(100)) for name in ("held", "own", "own")]
    plan = LaunchPlan(buffers(own=100), (Zero("own"), *steps))
    device.allocate(plan.buffers)
    device.enqueue(device.load(artifact, plan), plan, {"held": held.data_ptr()})
    assert (held * 2).tolist() == [16.0] * 100  # PyTorch's default stream waits for what was put on it
    assert device.download("own").tolist() == [2.0] * 100
    assert torch.full((8,), 2.0, device="cuda").sum().item() == 16.0
