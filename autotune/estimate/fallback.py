"""A first estimate of a plan's time on a GPU that is not there: a roofline with efficiencies read off the compiler's
report.

It takes the place of `autotune.estimate.model` where nothing could be counted, and ranks far worse
(docs/estimate.md). It is meant to rank candidates of one problem, not to predict. For each launch

    time = max(flops / (peak * efficiency), bytes / (bandwidth * efficiency)) + launch overhead

- *flops*: the op's, shared out over the launches by a*b*c, the elements of the three largest tensors that a launch is
  given: a matrix product has three large ones, a row-wise helper has two and gets next to nothing.
- *bytes*: every buffer that a launch is given, once; so a pipeline pays for the matrices it keeps in memory.
- *hiding* latency: w / (w + 2) for w resident warps an SM (occupancy, or what the grid has if that is less).
- *reuse*: a thread that keeps r = registers/2 values does about 2/sqrt(r) loads per multiply-add: 1 / (1 + 8/sqrt(r)).
- *balance*: blocks an SM over that rounded up: the tail of the last wave, and the SMs that a small grid leaves idle.
- *spills*: 1 / (1 + spill_bytes/4096). *lanes*: the part of the last warp that is used. No shared memory: a quarter.

The constants are round numbers near the best fit to 112 random candidates of the forward and backward families timed
on an H200. Over those of them that skip masked tiles the rank correlation with the measured time was 0.87 and the
median ratio 1.05. What a launch *executes* is not in the compiler's report: whether masked tiles are skipped, products
recomputed, or banks in conflict moves the time by up to a factor of two and is not seen here, so that within one
family the ranking is weak. Deterministic: the same input gives the same estimate.
"""

import math
from collections.abc import Mapping, Sequence

from autotune.core.errors import LaunchError
from autotune.core.measurement import KernelResources, Timing
from autotune.core.model_version import MODEL, UNCOUNTED
from autotune.core.plan import Launch, LaunchPlan, ScalarArg, Zero
from autotune.gpus.spec import DeviceSpec

METHOD = f"estimate, model {MODEL}: {UNCOUNTED}"

_PEAK_SHARE = 0.7  # of the published rate, at best
_BANDWIDTH_SHARE = 0.9
_HALF_HIDDEN_WARPS = 2.0
_HALF_SPEED_SPILLS = 4096.0
_LOAD_COST = 4.0  # multiply-adds that a load takes the place of
_UNSHARED_SHARE = 0.25
_FIRST_LAUNCH_S = 2e-6
_NEXT_STEP_S = 1e-6


def estimate(
    op_flops: float,
    op_bytes: float,
    plan: LaunchPlan,
    resources: Sequence[KernelResources],
    spec: DeviceSpec,
    *,
    tensor_cores: bool = False,
) -> Timing:
    """Estimated time of a plan on `spec`, of kind "estimated".

    `op_flops` and `op_bytes` are the op's own counts (every input read once, every output written once);
    `resources` those of `kernel_resources`. `tensor_cores`: the kernels compute on them.

    Raises:
        LaunchError: a launch has no resources, or does not fit on an SM.
    """
    peak = (spec.tensor_tflops if tensor_cores else spec.fp32_tflops) * 1e12
    sizes = {buffer.name: buffer.elements for buffer in plan.buffers}
    nbytes = {buffer.name: buffer.nbytes for buffer in plan.buffers}
    bandwidth = spec.bandwidth_gbs * 1e9
    weights = [product_weight(launch, sizes) for launch in plan.launches]
    seconds = _FIRST_LAUNCH_S + _NEXT_STEP_S * max(0, len(plan.steps) - 1)
    for step in plan.steps:
        if isinstance(step, Zero):
            seconds += nbytes[step.buffer] / (bandwidth * _BANDWIDTH_SHARE)
    for launch, weight in zip(plan.launches, weights, strict=True):
        found = _find(launch, resources)
        flops = op_flops * weight / max(sum(weights), 1.0)
        touched = sum(nbytes[name] for name in {arg.storage for arg in launch.args if not isinstance(arg, ScalarArg)})
        seconds += max(
            flops / (peak * compute_efficiency(launch, found, spec)),
            touched / (bandwidth * memory_efficiency(launch, found, spec)),
        )
    milliseconds = 1e3 * max(seconds, op_bytes / bandwidth)
    return Timing("estimated", milliseconds, milliseconds, milliseconds, milliseconds, 0, METHOD)


def compute_efficiency(launch: Launch, resources: KernelResources, spec: DeviceSpec) -> float:
    """Share of the peak rate that a launch is taken to reach (0 to 1)."""
    reuse = 1.0 / (1.0 + _LOAD_COST * 2.0 / math.sqrt(max(resources.registers, 2) / 2.0))
    spills = 1.0 / (1.0 + resources.spill_bytes / _HALF_SPEED_SPILLS)
    lanes = launch.threads / (spec.warp_size * math.ceil(launch.threads / spec.warp_size))
    shared = 1.0 if resources.static_smem + resources.dynamic_smem > 0 else _UNSHARED_SHARE
    blocks = launch.blocks / spec.sm_count
    balance = blocks / math.ceil(blocks)
    return _PEAK_SHARE * reuse * spills * lanes * shared * balance * _hiding(launch, resources, spec)


def memory_efficiency(launch: Launch, resources: KernelResources, spec: DeviceSpec) -> float:
    """Share of the bandwidth that a launch is taken to reach (0 to 1); half the SMs can saturate it."""
    busy = min(1.0, 2.0 * launch.blocks / spec.sm_count)
    return _BANDWIDTH_SHARE * busy * _hiding(launch, resources, spec)


def _hiding(launch: Launch, resources: KernelResources, spec: DeviceSpec) -> float:
    warps_per_block = math.ceil(launch.threads / spec.warp_size)
    by_grid = math.ceil(launch.blocks / spec.sm_count) * warps_per_block
    by_occupancy = resources.occupancy * spec.max_threads_per_sm / spec.warp_size
    warps = min(by_grid, by_occupancy)
    if warps <= 0.0:
        raise LaunchError(f"kernel {launch.kernel} does not fit on an SM of {spec.title}")
    return warps / (warps + _HALF_HIDDEN_WARPS)


def product_weight(launch: Launch, sizes: Mapping[str, int]) -> float:
    """A launch's share in a plan's products, by the elements of its buffers: a product has three large operands, a
    row-wise helper two."""
    tensors = sorted((sizes[arg.storage] for arg in launch.args if not isinstance(arg, ScalarArg)), reverse=True)
    return float(math.prod(tensors[:3]))


def _find(launch: Launch, resources: Sequence[KernelResources]) -> KernelResources:
    for found in resources:
        if (found.kernel, found.threads, found.dynamic_smem) == (launch.kernel, launch.threads, launch.smem):
            return found
    raise LaunchError(f"kernel {launch.kernel} is launched but its resources are not known")
