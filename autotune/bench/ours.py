"""Our kernels as a contender: what a look-up answers, called as `autotune.kernel` is."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from autotune.answers.best import Best
from autotune.answers.kernel import Kernel
from autotune.answers.lookup import best
from autotune.bench.contender import OURS, Call, Contender
from autotune.bench.torch_timing import Tensors
from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.dtypes import torch_dtype
from autotune.core.errors import AutotuneError, NoFeasibleConfiguration
from autotune.core.plan import TensorSpec
from autotune.core.problem import Problem
from autotune.devices.driver import Driver
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op

Look = Callable[[Problem], Best]


def look_up(spec: DeviceSpec, db: str | None = None, *, full_precision: bool = False) -> Look:
    """Look-ups for a GPU, as `autotune.best` answers them."""

    def look(problem: Problem) -> Best:
        fields: dict[str, Any] = problem.fields
        return best(problem.op, db=db, device=spec, full_precision=full_precision, **fields)

    return look


class Ours(Contender):
    """The best configurations known. What a backward pass needs of a forward one, ours computes as well."""

    name = title = OURS

    def __init__(self, torch: Any, look: Look, driver: Driver, index: int = 0, *, in_place: bool = False) -> None:
        """Ours on a GPU.

        Args:
            torch: the module.
            look: answers what is known of a problem.
            driver: of the GPU.
            index: of the GPU, as the driver counts them.
            in_place: whether calls write into the same outputs each time, in place of new ones.
        """
        self._torch, self._look, self._driver, self._index = torch, look, driver, index
        self._in_place = in_place
        self._kernels: dict[Problem, Kernel] = {}

    def why_not(self, problem: Problem) -> str | None:
        try:
            self._look(problem)
        except NoFeasibleConfiguration as error:
            return str(error)
        return None

    def kernel(self, problem: Problem) -> Kernel:
        """What is called, loaded once."""
        if problem not in self._kernels:
            self._kernels[problem] = Kernel(self._look(problem), self._look, self._driver, self._index)
        return self._kernels[problem]

    def call(self, problem: Problem, tensors: Tensors) -> Call:
        """One call of the kernel.

        Raises:
            AutotuneError: as look-ups, builds and launches do.
        """
        kernel, inputs = self.kernel(problem), self.inputs(problem, tensors)
        if self._in_place:
            inputs = {**inputs, **empty_outputs(self._torch, problem, tensors.q.device)}
        return lambda: kernel(**inputs)

    def results(self, problem: Problem, tensors: Tensors) -> Mapping[str, Any]:
        """Into outputs full of NaN: what is not written shows."""
        outputs = empty_outputs(self._torch, problem, tensors.q.device)
        return self.kernel(problem)(**self.inputs(problem, tensors), **outputs)

    def inputs(self, problem: Problem, tensors: Tensors) -> dict[str, Any]:
        """The op's inputs by name; out and the log-sum-exp, which backward needs, by our own forward kernel."""
        given = {"q": tensors.q, "k": tensors.k, "v": tensors.v}
        if problem.op == "forward":
            return given
        forward = get_op("forward").problem(**problem.fields)
        saved = self.kernel(forward)(**given, **empty_outputs(self._torch, forward, tensors.q.device))
        return {**given, **saved, "dout": tensors.dout}

    def said(self, problem: Problem) -> Mapping[str, Any]:
        found = self._look(problem)
        return {
            "answer": found.answer, "template": found.candidate.template, "config": found.config,
            "template_hash": found.candidate.template_hash, "measurement_id": found.measurement_id,
        }  # fmt: skip


def empty_outputs(torch: Any, problem: Problem, device: Any = "cuda") -> dict[str, Any]:
    """New tensors for the outputs, laid out as the problem says, full of NaN."""
    return {
        tensor.name: _empty(torch, tensor, device)
        for tensor in get_op(problem.op).tensors(problem)
        if tensor.role == "output"
    }


def _empty(torch: Any, tensor: TensorSpec, device: Any) -> Any:
    storage = torch.full((tensor.extent,), float("nan"), dtype=torch_dtype(torch, tensor.dtype), device=device)
    return storage.as_strided(tensor.shape, tensor.strides, tensor.offset)


def with_forwards(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, and the forward ones whose results backward ones need; each once."""
    wanted = list(problems)
    forwards = [get_op("forward").problem(**p.fields) for p in wanted if p.op in ("forward", "backward")]
    return list(dict.fromkeys([*wanted, *forwards]))


def build_all(problems: Iterable[Problem], look: Look) -> int:
    """Fill the build cache, on all cores; how many look-ups were answered. What fails is left to whoever needs it."""
    answered = 0
    with BuildPool(BuildCache()) as pool:
        builds: dict[str, Future[Artifact]] = {}
        for problem in problems:
            with contextlib.suppress(AutotuneError):
                source, arch = (found := look(problem)).source, found.device.arch
                if source.hash not in builds:  # one serves many problems
                    builds[source.hash] = pool.submit(CubinRequest(source, arch))
                answered += 1
        for future in builds.values():
            future.exception()
    return answered
