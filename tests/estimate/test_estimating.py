from typing import Any

import pytest

from autotune.core.errors import LaunchError
from autotune.estimate.examine import estimate_candidate
from autotune.families.op_ref import OpRef
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.trace.task import TraceTask


def task(family: str, device: str, **changed: Any) -> TraceTask:
    ref, template = OpRef("forward"), find_template("forward", family)
    problem = ref.resolve().problem(T=1024, dtype="fp16")
    config = {**dict(template.front.defaults), **changed}
    return TraceTask(ref, template.path, problem, tuple(config.items()), gpu(device), blocks=None)


def test_the_default_problem_is_near_what_an_h200_measured() -> None:
    found = estimate_candidate(task("flash_mma", "h200"))
    assert 0.0336 / 1.4 < found.ms < 0.0336 * 1.4  # docs/results.md
    (launch,) = found.launches
    assert launch.kernel == "attention_forward"
    assert launch.flops > 4 * 48 * 1024 * 1024 * 64 / 2
    assert launch.blocks_per_sm == 2
    assert found.bound in {"tensor", "shared memory"}


def test_what_the_gpu_would_refuse_is_said() -> None:
    with pytest.raises(LaunchError, match=r"asks for \d+ bytes of shared memory"):
        estimate_candidate(task("flash_mma", "rtx4090", BLOCK_M=128, BLOCK_N=128, STAGES=3))
