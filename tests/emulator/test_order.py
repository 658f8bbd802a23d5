"""The order in which the emulator runs blocks, warps and lanes: each run of a program has another one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.core.plan import Launch, LaunchPlan
from autotune.devices.emulated import CpuDevice
from tests.emulator.emulating import SPEC, buffers_of, build, pointer

TURNS = """
extern "C" __global__ void turns(int* count, int* turn, int* last) {
  turn[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(count, 1);
  *last = blockIdx.x;  // whoever comes last: a sum between blocks that is not atomic goes wrong in the same way
}
"""


def orders(blocks: int, threads: int, runs: int) -> list[NDArray[np.int32]]:
    """For each run the turn that each thread had."""
    arrays = {
        "count": np.zeros(1, np.int32),
        "turn": np.zeros(blocks * threads, np.int32),
        "last": np.zeros(1, np.int32),
    }
    buffers, device = buffers_of(arrays), CpuDevice(SPEC, 1)
    plan = LaunchPlan(buffers, (Launch("turns", (blocks, 1, 1), (threads, 1, 1), 0, tuple(map(pointer, buffers))),))
    device.allocate(buffers)
    program = device.load(build(TURNS), plan)
    found = []
    for _ in range(runs):
        device.upload("count", arrays["count"])
        device.run(program, plan)
        found.append(device.download("turn"))
    program.close()
    device.close()
    return found


@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (7, 32), (5, 96), (12, 128), (3, 70), (1, 20)])
def test_every_thread_has_a_turn_in_every_order(blocks: int, threads: int) -> None:
    found = orders(blocks, threads, 4)
    for turns in found:
        assert sorted(turns) == list(range(blocks * threads))
    assert np.array_equal(found[0], np.arange(blocks * threads))  # the first goes by number
    if blocks > 2:
        assert len({turns.reshape(blocks, threads)[:, 0].tobytes() for turns in found}) > 1
    if threads >= 64:
        warps = [turns.reshape(blocks, threads)[0, : threads // 32 * 32].reshape(-1, 32) for turns in found]
        assert len({np.argsort(each[:, 0]).tobytes() for each in warps}) > 1
        assert len({np.argsort(each[0]).tobytes() for each in warps}) > 1


def test_the_sequence_of_orders_is_the_same_for_every_program() -> None:
    assert [turns.tobytes() for turns in orders(6, 64, 3)] == [turns.tobytes() for turns in orders(6, 64, 3)]
