"""Records for tests of the store: a device, a problem, candidates and measurements of every outcome."""

from dataclasses import replace

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.measurement import KernelResources, Measurement, OutputCheck, Timing, Verification
from autotune.core.model_version import DRIVER
from autotune.core.outcome import Outcome
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

H200 = DeviceIdentity("cuda", gpu("h200"))
H100 = DeviceIdentity("cuda", gpu("h100"))
CPU_H200 = DeviceIdentity("cpu", gpu("h200"))
FORWARD = get_op("forward").problem()
BACKWARD = get_op("backward").problem(T=512)
SOURCE = "0123456789abcdef"
HASH = "feedfacecafebeef"


def candidate(BLOCK_M: int = 64, template: str = "simt", template_hash: str = HASH) -> Candidate:
    return make_candidate(template, template_hash, {"BLOCK_M": BLOCK_M, "SKIP": True, "GRID": "x=head,y=row"})


def timing(ms: float, kind: str = "measured") -> Timing:
    assert kind in {"measured", "estimated"}
    return Timing(
        "measured" if kind == "measured" else "estimated", ms, ms * 0.99, ms * 1.01, ms * 0.98, 25, "events", 1980.0
    )


def ok(ms: float, kind: str = "measured", driver: str | None = None, compiler: str = "nvcc 13.0.88") -> Measurement:
    if driver is None:
        driver = "570.1" if kind == "measured" else DRIVER
    return Measurement(
        Outcome.OK,
        timing=timing(ms, kind),
        verification=Verification("forward B=1", (OutputCheck("out", 1e-4, 2e-3, 0, (0, 1, 2, 3)),), 4, 48),
        resources=(KernelResources("attend", 96, 0, 0, 49152, 128, 0.25),),
        build_seconds=1.5,
        device_seconds=0.25,
        environment={"driver": driver, "compiler": compiler, "host": "lab"},
    )


def failed(outcome: Outcome, message: str = "it failed") -> Measurement:
    return Measurement(outcome, message, environment={"driver": "570.1", "compiler": "nvcc 13.0.88"})


def wrong() -> Measurement:
    check = OutputCheck("out", float("nan"), 2e-3, 17, (0, 0, 0, 1))
    return replace(failed(Outcome.WRONG_RESULT), verification=Verification("forward B=1", (check,), 4, 48))
