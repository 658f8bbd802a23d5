from pathlib import Path

import pytest

from autotune.compilers.artifact import Artifact, KernelReport
from autotune.core.measurement import KernelResources
from autotune.core.plan import Launch, LaunchPlan, Zero
from autotune.estimate.occupancy import Occupancy, kernel_resources, occupancy, static_failure
from autotune.gpus.known import gpu


# Each expectation is worked out by hand from the rules of NVIDIA's occupancy calculator:
# registers a warp rounded up to 256, warps of one of the SM's four register files times four, over the block's warps;
# shared memory a block plus the reserved KB, rounded up to 128 (before sm_80: nothing reserved, 256).
@pytest.mark.parametrize(
    ("name", "registers", "smem", "threads", "expected"),
    [
        # 128*32=4096 a warp; 16384/4096=4, times 4 = 16 warps; a block has 8.
        ("h200", 128, 0, 256, Occupancy(2, "registers", 512 / 2048)),
        # 33*32=1056 -> 1280; 16384/1280=12, times 4 = 48 warps; a block has 4.
        ("h200", 33, 0, 128, Occupancy(12, "registers", 12 * 128 / 2048)),
        # 168*32=5376; 16384/5376=3, times 4 = 12 warps: one block of 384 threads, one of 288.
        ("h200", 168, 0, 384, Occupancy(1, "registers", 384 / 2048)),
        ("h200", 168, 0, 288, Occupancy(1, "registers", 288 / 2048)),
        # 255*32=8160 -> 8192; the launch check rounds 16 warps: 131072 > 65536, no block at all.
        ("h200", 255, 0, 512, Occupancy(0, "registers", 0.0)),
        # 5 warps are checked as 8: 8*8192 = 65536 just fits; 2*4=8 warps hold one block of 5.
        ("h200", 255, 0, 160, Occupancy(1, "registers", 160 / 2048)),
        # (100000+1024) -> 101120 bytes; 233472/101120 = 2.
        ("h200", 128, 100_000, 128, Occupancy(2, "shared memory", 256 / 2048)),
        # The largest block: 232448+1024 = 233472, exactly one.
        ("h200", 32, 232_448, 1024, Occupancy(1, "shared memory", 0.5)),
        # (40000+1024) -> 41088; 167936/41088 = 4.
        ("a100", 40, 40_000, 128, Occupancy(4, "shared memory", 512 / 2048)),
        # 1536/256=6 by threads; 1024 registers a warp: 16*4/8=8 blocks.
        ("rtx3090", 32, 0, 256, Occupancy(6, "threads", 1.0)),
        # 16 blocks an SM of 32 threads: 512 of 1536.
        ("rtx3090", 16, 0, 32, Occupancy(16, "blocks", 512 / 1536)),
        # Nothing reserved: 65536/16384 = 4; threads and registers would allow 8.
        ("t4", 64, 16_384, 128, Occupancy(4, "shared memory", 0.5)),
        # 100 threads take 4 warps.
        ("h200", 32, 0, 100, Occupancy(16, "threads", 1.0)),
    ],
)
def test_occupancy(name: str, registers: int, smem: int, threads: int, expected: Occupancy) -> None:
    assert occupancy(registers, smem, threads, gpu(name)) == expected


def artifact(*kernels: KernelReport) -> Artifact:
    return Artifact("cubin", Path("k.cubin"), Path("k.cu"), "key", "hash", kernels, "nvcc 13.0.88", 1.0, cached=False)


def plan(
    smem: int = 0, block: tuple[int, int, int] = (128, 1, 1), grid: tuple[int, int, int] = (8, 1, 1)
) -> LaunchPlan:
    return LaunchPlan((), (Zero("out"), Launch("k", grid, block, smem, ())))


def report(registers: int = 64, static_smem: int = 0) -> KernelReport:
    return KernelReport("k", registers, spill_bytes=8, static_smem=static_smem)


def test_resources_of_each_kernel() -> None:
    steps = (
        Launch("b", (1, 1, 1), (256, 1, 1), 0, ()),
        *plan(smem=40_000).steps,
        Launch("k", (9, 1, 1), (128, 1, 1), 40_000, ()),
    )
    found = kernel_resources(
        LaunchPlan((), steps), artifact(report(40, 100), KernelReport("b", 128, 0, 0)), gpu("h200")
    )
    assert found == (
        KernelResources("b", 128, 0, 0, 0, 256, 0.25),
        KernelResources("k", 40, 8, 100, 40_000, 128, 5 * 128 / 2048),  # 41124 -> 41216; 233472/41216 = 5
    )


def test_a_kernel_launched_in_two_ways_is_listed_twice() -> None:
    steps = tuple(Launch("k", (1, 1, 1), (threads, 1, 1), 0, ()) for threads in (128, 256, 128))
    found = kernel_resources(LaunchPlan((), steps), artifact(report()), gpu("h200"))
    assert [resources.threads for resources in found] == [128, 256]


def test_a_candidate_that_can_run() -> None:
    assert static_failure(plan(smem=232_448), artifact(report()), gpu("h200")) is None


@pytest.mark.parametrize(
    ("launched", "reported", "message"),
    [
        (
            plan(smem=240_000),
            report(),
            "kernel k asks for 240000 bytes of shared memory; NVIDIA H200 allows 232448",
        ),
        (
            plan(smem=232_000),
            report(static_smem=1000),
            "kernel k asks for 233000 bytes of shared memory (1000 static + 232000 dynamic); NVIDIA H200 allows 232448",
        ),
        (
            plan(block=(1024, 2, 1)),
            report(16),
            "kernel k asks for 2048 threads a block; NVIDIA H200 allows 1024",
        ),
        (
            plan(block=(512, 1, 1)),
            report(255),
            "kernel k needs 131072 registers a block (255 a thread, 512 threads); NVIDIA H200 has 65536",
        ),
        (plan(block=(1, 1, 65)), report(), "kernel k has 65 threads along z; 1 to 64 are allowed"),
        (plan(block=(0, 1, 1)), report(), "kernel k has 0 threads along x; 1 to 1024 are allowed"),
        (plan(grid=(1, 65536, 1)), report(), "kernel k has 65536 blocks along y; 1 to 65535 are allowed"),
        (plan(grid=(0, 1, 1)), report(), "kernel k has 0 blocks along x; 1 to 2147483647 are allowed"),
        (
            plan(),
            KernelReport("k", 8, 0, 0, loss="'setmaxnreg' ignored (C7508)"),
            "kernel k is not compiled as it is written: 'setmaxnreg' ignored (C7508)",
        ),
        (plan(), KernelReport("other", 8, 0, 0), "kernel k is launched but not in the compiled binary"),
    ],
)
def test_why_a_candidate_cannot_run(launched: LaunchPlan, reported: KernelReport, message: str) -> None:
    assert static_failure(launched, artifact(reported), gpu("h200")) == message
