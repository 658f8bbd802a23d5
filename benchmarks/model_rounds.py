"""Several of our configurations and PyTorch's backends on the same tensors, timed in turns on a GPU."""

import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from autotune.answers.best import Best
from autotune.core.errors import AutotuneError
from autotune.core.problem import Problem
from autotune.devices.cuda import CudaDevice
from benchmarks.against_peers import inputs_of, timed_rounds
from benchmarks.ours import our_call, outputs_of
from benchmarks.peers import Call, Tensors, difference, peer_call, versions, wanted

_OUTPUTS = {"forward": ("out",), "backward": ("dq", "dk", "dv")}


@dataclass
class GpuRounds:
    """Times on the GPU with this index. Each of our calls has a device object of its own: they hold workspaces."""

    index: int = 0
    db: str | None = None
    """Database in which the forward kernel is looked up that makes what backward needs."""
    _devices: list[CudaDevice] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """What is measured with."""
        return {**self._device(0).environment(), **versions()}

    def __call__(self, problem: Problem, ours: Mapping[str, Best]) -> dict[str, Any]:
        """Medians by name, of `ours` and of every peer that takes the problem, why others do not, and for each of ours
        how far its outputs are from the first peer's.

        Of equal configurations one is timed, and its time stands for all.
        """
        tensors = Tensors.of(problem)
        inputs = inputs_of(self._device(0), problem, tensors, self.db)
        calls, refused = self._peers(problem, tensors)
        apart: dict[str, float | None] = {}
        first: dict[str, str] = {}
        with ExitStack() as stack:
            timed: dict[str, Call] = {}
            for number, (name, found) in enumerate(ours.items(), start=1):
                same = first.setdefault(found.candidate.key, name)
                if same != name:
                    continue
                try:
                    call, outputs = stack.enter_context(
                        our_call(self._device(number), found, {**inputs, **outputs_of(found)})
                    )
                    call()
                    torch.cuda.synchronize()
                    apart[name] = _apart(problem, outputs, calls)
                except AutotuneError as error:
                    refused[name] = str(error).splitlines()[0][:200]
                else:
                    timed[name] = call
            rounds = timed_rounds({**timed, **calls})
        ms = {name: statistics.median(times) for name, times in rounds.items()}
        ms |= {name: ms[first[f.candidate.key]] for name, f in ours.items() if first[f.candidate.key] in ms}
        torch.cuda.empty_cache()
        return {"ms": ms, "rounds": rounds, "refused": refused, "difference": apart}

    def _device(self, number: int) -> CudaDevice:
        while len(self._devices) <= number:
            self._devices.append(CudaDevice(self.index))
        return self._devices[number]

    @staticmethod
    def _peers(problem: Problem, tensors: Tensors) -> tuple[dict[str, Call], dict[str, str]]:
        """Those that run the problem, and why the others do not."""
        names = [name for name in wanted(problem) if name != "math"]
        if problem["causal"] and problem["T"] != problem["T_kv"]:
            return {}, dict.fromkeys(names, "PyTorch aligns its causal mask with the first key")
        calls: dict[str, Call] = {}
        refused: dict[str, str] = {}
        for name in names:
            try:
                call = peer_call(problem, name, tensors)
                call()
                torch.cuda.synchronize()
            except (RuntimeError, ImportError, TypeError) as error:
                refused[name] = (str(error).splitlines() or [type(error).__name__])[0][:120]
            else:
                calls[name] = call
        return calls, refused


def _apart(problem: Problem, outputs: Callable[[], dict[str, torch.Tensor]], calls: Mapping[str, Call]) -> float | None:
    """||ours - peer|| / ||peer||, the largest over the outputs; None where there is no peer."""
    for call in calls.values():
        result = call()
        values = result if isinstance(result, tuple) else (result,)
        return difference(outputs(), dict(zip(_OUTPUTS[problem.op], values, strict=True)))
    return None
