"""Recorded measurements played back, so that search strategies are compared with no device at all."""

from collections.abc import Mapping

from autotune.core.measurement import Energy, Measurement, Timing
from autotune.core.outcome import Outcome
from autotune.core.values import Config
from autotune.devices.recorded import RecordedResult, RecordedSpace
from autotune.devices.timing import quartiles
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import by_title, short_name
from autotune.gpus.spec import DeviceSpec

__all__ = ["RecordedSpace", "ReplayDevice"]

METHOD = "replayed from a recording"


class ReplayDevice:
    """Answers each configuration from a recording, at once and always alike.

    There is nothing to build, launch or verify, so it is asked for whole measurements; `evaluations` counts them.
    """

    def __init__(self, space: RecordedSpace) -> None:
        self.space = space
        self.identity = DeviceIdentity("replay", by_title(space.device) or _unknown_spec(space.device))
        self.evaluations = 0

    def environment(self) -> Mapping[str, str]:
        return {"device": self.space.device, "recording": self.space.name}

    def measure(self, config: Config) -> Measurement:
        """The recorded measurement of a configuration; `infeasible` for one that is not in the recording.

        Raises:
            UsageError: the configuration lacks a parameter of the space.
        """
        result = self.space.lookup(config)
        self.evaluations += 1
        message = "" if result.outcome is Outcome.OK else f"recorded as {result.outcome}"
        return Measurement(
            result.outcome, message, _timing(result), environment=self.environment(), energy=_energy(result)
        )

    def close(self) -> None:
        """Nothing to free."""


def _energy(result: RecordedResult) -> Energy | None:
    mj, ms = result.energy_mj, result.median_ms
    return None if mj is None or ms is None else Energy(mj, mj / ms, ms, 1, ms / 1e3, METHOD)


def _timing(result: RecordedResult) -> Timing | None:
    if result.median_ms is None:
        return None
    if not result.times_ms:
        once = result.median_ms
        return Timing("measured", once, once, once, once, 1, METHOD)
    q1, _, q3 = quartiles(result.times_ms)
    # The recording's own figure is what strategies are judged by; it may be a mean, outside the quartiles.
    median = result.median_ms
    low, high = min(*result.times_ms, median), max(q3, median)
    return Timing("measured", median, min(q1, median), high, low, len(result.times_ms), METHOD)


def _unknown_spec(title: str) -> DeviceSpec:
    """A device that is only a name: nothing about it is known or needed."""
    return DeviceSpec(
        name=short_name(title), title=title, arch="sm_0", sm_count=0, max_shared_memory=0, shared_memory_per_sm=0,
        l2_bytes=0, memory_bytes=0, clock_mhz=0, bandwidth_gbs=0.0, fp32_tflops=0.0, tensor_tflops=0.0,
        max_threads_per_sm=0, max_blocks_per_sm=0, reserved_shared_memory=0,
    )  # fmt: skip
