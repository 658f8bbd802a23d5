"""A tuned kernel as a callable: `autotune.kernel(op="forward", T=1024)(q=…, k=…, v=…)`.

On a GPU it takes arrays of PyTorch, CuPy, JAX, PyCUDA and others where they lie: any strides, no copy, on the caller's
stream. Arrays in the host's memory (NumPy's, PyTorch's) are copied to the device and back: to the GPU, or the emulator.
"""

import sys
import threading
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.answers.arrays import DeviceArray, bind, describe, host_view, is_on_device
from autotune.answers.best import Best
from autotune.answers.calls import ArrayCall, Call, Scratch, TorchCall, missing_outputs, stream_of
from autotune.answers.checked import apart, check_on_host, number
from autotune.answers.host_runs import GpuRunner, HostRunner, Runner
from autotune.answers.libraries import library_of, make_outputs, stream_handle
from autotune.answers.lookup import best, best_of_lengths
from autotune.answers.shapes import ShapeReader
from autotune.answers.tuned import found_or_tuned, way_of
from autotune.compilers.cache import BuildCache
from autotune.compilers.recalled import built_cubin
from autotune.core.arguments import require_whole
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import DeviceMissing, FaultFound, LaunchError, NoFeasibleConfiguration, UsageError
from autotune.core.measurement import Verification
from autotune.core.plan import LaunchPlan, TensorSpec
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.core.words import format_ms
from autotune.devices.driver import Driver, cuda_driver
from autotune.devices.prepared import Binary, Cubin, Prepared
from autotune.families.planning import with_scalars
from autotune.families.space import Space
from autotune.families.user_functions import Function, Named
from autotune.gpus.identity import parse_device, require_name
from autotune.ops.expected import tensor_view
from autotune.ops.op import Op
from autotune.ops.registry import get_op

_MOST_CALLS = 4096  # shapes and strides that are remembered
_Placed = Mapping[str, DeviceArray]


@dataclass(frozen=True)
class Fit:
    """The best configuration for the arrays of a call, and the op's tensors of that size."""

    best: Best
    tensors: Mapping[str, TensorSpec]


class Kernel:
    """The best configuration of a problem, and of those that differ from it in lengths, built and loaded when called.

    Calls from any number of threads and streams may overlap. On a GPU they go on the caller's current stream and do
    not wait; once a shape has been called, they can be captured in a graph.
    """

    def __init__(
        self, found: Best, find: Callable[[Problem], Best], driver: Driver | None = None, gpu: int = 0
    ) -> None:
        """A kernel for `found`; `find` answers for other lengths. Without a driver it runs on the emulator."""
        self.best = found
        self._find, self._driver, self._gpu = find, driver, gpu
        self._op: Op = get_op(found.problem.op)
        self._changed = self._op.in_place(found.problem)
        self._tensors = {t.name: t for t in self._op.tensors(found.problem) if t.name not in self._changed.values()}
        self._scalars = frozenset(self._op.scalars(found.problem)) - found.problem.fields.keys()
        self._shapes = ShapeReader(self._op, found.problem)
        self._lock = threading.RLock()
        self._torch_calls: dict[tuple[Any, ...], TorchCall] = {}
        self._array_calls: dict[tuple[Any, ...], ArrayCall] = {}
        self._fits: dict[Problem, Fit] = {found.problem: Fit(found, self._tensors)}
        self._binaries: dict[tuple[int, str], Binary] = {}
        self._scratch = Scratch()
        self._runner: Runner = HostRunner(found.device) if driver is None else GpuRunner(driver, gpu, self._binary)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments, each of the logical shape that `shape` gives."""
        return tuple(n for n, tensor in self._tensors.items() if tensor.role == "input" or n in self._changed)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for name, tensor in self._tensors.items() if tensor.role == "output")

    def shape(self, name: str) -> tuple[int, ...]:
        """The logical shape of an argument or result; attention's is (B, NH, T, HS) in every layout.

        Raises:
            UsageError: there is none of this name.
        """
        if not isinstance(name, str) or name not in self._tensors:
            raise UsageError(f"{self._op.name} has no tensor {name!r}; it has {', '.join(self._tensors)}")
        return self._tensors[name].shape

    def __repr__(self) -> str:
        found, where = self.best, "on the emulator for " if self._driver is None else "on "
        time = "" if found.found_ms is None else f", {format_ms(found.found_ms)} ms {found.kind}"
        time += f" {found.found_for}" if found.found_for else ""
        takes = ", ".join(f"{name} {self._tensors[name].shape}" for name in self.inputs)
        return (
            f"<autotune kernel {found.problem}: {found.candidate} {where}{found.device.title}, {found.answer}{time}; "
            f"takes {takes}>"
        )

    def __call__(self, *unnamed: Any, stream: Any = None, **given: Any) -> dict[str, Any]:
        """The outputs by name.

        Args:
            stream: of arrays on a GPU: a handle, or an object of their library; by default its current stream, or
                the one that `__cuda_array_interface__` names.
            given: every input by name, in its logical shape and dtype; outputs too, to be written in place (what the
                kernel changes in place is both); and the op's own numbers (attention: `scale`), where they are not
                to be as usual.

        Raises:
            UsageError: a missing or unknown name, a wrong shape or dtype, arrays of both kinds; an output that is
                read-only, or overlaps itself or another array in memory. Nothing has run then.
            CompileError: the compiler refuses the kernel.
            LaunchError: the device refuses it.
        """
        if unnamed:
            named = ", ".join(f"{name}=..." for name in self.inputs)
            raise UsageError(f"{self._op.name} takes no arrays by position; give arrays by name: kernel({named})")
        torch = sys.modules.get("torch")
        if torch is not None:
            kind, key, addresses = torch.Tensor, list[Any](), list[int]()
            for name, array in given.items():
                if isinstance(array, kind):
                    key += (name, array.shape, array.stride(), array.dtype, array.get_device())
                    addresses.append(array.data_ptr())
                else:
                    key += (name, array) if type(array) is float else (name, None)
            call = self._torch_calls.get(tuple(key))
            if call is not None:
                return call(given, addresses, None if stream is None else stream_handle(stream))
        return self._call(given, stream)

    def _call(self, given: Mapping[str, Any], stream: Any) -> dict[str, Any]:
        """A call that has not been made ready, or is not of PyTorch's tensors alone."""
        arrays = {name: value for name, value in given.items() if name not in self._scalars}
        self._check_names(arrays)
        scalars = {name: number(name, given[name], self._op) for name in self._scalars if name in given}
        on_device = [is_on_device(array) for array in arrays.values()]
        if not any(on_device):
            return self._by_copy(arrays, scalars)
        if not all(on_device):
            raise UsageError("arrays on the GPU and arrays in the host's memory cannot be mixed in one call")
        if self._driver is None:
            raise DeviceMissing("arrays on a GPU need a kernel on it: autotune.kernel(..., device='cuda')")
        if all(library_of(array) == "torch" for array in arrays.values()):
            return self._torch_call(arrays, scalars, given)(
                arrays,
                [array.data_ptr() for array in arrays.values()],
                None if stream is None else stream_handle(stream),
            )
        chosen = stream_of(arrays, self._gpu) if stream is None else stream_handle(stream)
        described = {name: describe(array, self._gpu, chosen) for name, array in arrays.items()}
        call = self._array_call(arrays, described, scalars)
        return call(arrays, [array.address for array in described.values()], chosen)

    def verify(self, seed: int = 1) -> Verification:
        """Compare with the float64 reference on this very problem, as a search does with a candidate, and as exactly.

        A search has verified the problem that it searched and awkward ones; `best.answer` tells whether that was this
        one. Inputs are the ordinary ones and those made to show mistakes. Long problems take seconds.

        Raises:
            FaultFound: the kernel is wrong; the message says where.
            UsageError: a seed that is no whole number of at least 0.
            AutotuneError: as calls.
        """
        require_whole("seed", seed, 0)
        from autotune.devices.comparison import compare_all
        from autotune.ops.expected import expectations

        found = []
        for expected in expectations(self._op, self.best.problem, seed):
            given = {
                name: tensor_view(expected.images[self._tensors[name].storage], self._tensors[name])
                for name in self.inputs
            }
            got = self._by_copy(given, {})
            verification, said = compare_all(self._op, expected, got, self.best.plan.arithmetic)
            if said:
                raise FaultFound(f"{self.best.candidate} on {self.best.problem}: {said}")
            found.append(verification)
        return found[0]

    def fit(self, shapes: Mapping[str, tuple[int, ...]]) -> Fit:
        """The configuration for arrays of these shapes, as a look-up has it.

        Raises:
            UsageError: they are those of no problem of this kernel.
            NoFeasibleConfiguration: nothing computes it.
        """
        with self._lock:
            problem = self._shapes.problem(shapes)
            if problem not in self._fits:
                tensors = {tensor.name: tensor for tensor in self._op.tensors(problem)}
                remember(self._fits, problem, Fit(self._find(problem), tensors))
            return self._fits[problem]

    def ready(self, given: Mapping[str, Any]) -> TorchCall | None:
        """What a call with PyTorch's tensors and numbers like these does, once one has been made on a GPU."""
        return self._torch_calls.get(self._torch_key(given, given.keys() - self._scalars))

    @staticmethod
    def _torch_key(given: Mapping[str, Any], arrays: Container[str]) -> tuple[Any, ...]:
        key = list[Any]()
        for name, value in given.items():
            if name in arrays:
                key += (name, value.shape, value.stride(), value.dtype, value.get_device())
            else:
                key += (name, value) if type(value) is float else (name, None)
        return tuple(key)

    def _torch_call(self, arrays: Mapping[str, Any], scalars: dict[str, float], given: Mapping[str, Any]) -> TorchCall:
        """What is done for these shapes, strides and numbers, kept for the next time."""
        key = self._torch_key(given, arrays)
        with self._lock:
            if key in self._torch_calls:
                return self._torch_calls[key]
            described = {name: describe(array) for name, array in arrays.items()}
            made = TorchCall(self._prepare(arrays, described, scalars))
            if None not in key[1::2] and all(type(given[name]) is float for name in scalars):
                remember(self._torch_calls, key, made)
            return made

    def _array_call(
        self, arrays: Mapping[str, Any], described: Mapping[str, DeviceArray], scalars: dict[str, float]
    ) -> ArrayCall:
        places = ((name, a.shape, a.strides, a.dtype, a.gpu, a.read_only) for name, a in described.items())
        key = (*places, *sorted(scalars.items()), *map(library_of, arrays.values()))
        with self._lock:
            if key not in self._array_calls:
                made = ArrayCall(self._prepare(arrays, described, scalars), self._scratch)
                remember(self._array_calls, key, made)
            return self._array_calls[key]

    def _prepare(
        self, arrays: Mapping[str, Any], described: Mapping[str, DeviceArray], scalars: Mapping[str, float]
    ) -> Call:
        """Look the shapes up, build, load and pack."""
        assert self._driver is not None
        gpus = {array.gpu for array in described.values()}
        if len(gpus) > 1:
            raise UsageError(f"the arrays lie on several GPUs: {', '.join(map(str, sorted(gpus, key=str)))}")
        (gpu,) = gpus
        fit = self.fit({name: array.shape for name, array in described.items()})
        looks = apart(described, fit.tensors)
        missing = missing_outputs([*arrays], self.outputs)
        made = make_outputs(next(iter(arrays.values())), fit.tensors, missing) if missing else {}
        placed = {**described, **{name: describe(array, gpu or 0, 0) for name, array in made.items()}}
        prepared = self._prepared(fit, scalars, placed, (*arrays, *missing), gpu or 0)
        device = getattr(next(iter(arrays.values())), "device", None)
        return Call(self._driver, gpu or 0, prepared, fit.tensors, self.outputs, missing, looks, device)

    def _prepared(
        self, fit: Fit, scalars: Mapping[str, float], placed: _Placed, names: tuple[str, ...], gpu: int
    ) -> Prepared:
        """For arrays that TMA does not take as they lie, the kernel of the layout that asks the least of them."""
        assert self._driver is not None
        try:
            plan = bind(self._plan(fit.best, scalars), fit.tensors, placed)
            return Prepared(self._driver, gpu, self._binary(gpu, fit.best), plan, names)
        except LaunchError as error:
            problem = self._op.laid_out_otherwise(fit.best.problem)
            if problem is None:
                raise
            with suppress(NoFeasibleConfiguration):
                other = Fit(self._find(problem), {tensor.name: tensor for tensor in self._op.tensors(problem)})
                if other.best.source.hash != fit.best.source.hash:
                    return self._prepared(other, scalars, placed, names, gpu)
            raise error

    def _binary(self, gpu: int, found: Best) -> Binary:
        """The kernels, loaded on a GPU: for every shape with the same source they are the same."""
        assert self._driver is not None
        with self._lock:
            key = gpu, found.source.hash
            if key not in self._binaries:
                artifact = built_cubin(found.source, found.device.arch, BuildCache())
                self._binaries[key] = Cubin(self._driver, gpu, artifact, found.plan, found.device)
            return self._binaries[key]

    def _plan(self, found: Best, scalars: Mapping[str, float]) -> LaunchPlan:
        if not scalars:
            return found.plan
        namespace = Space(found.template, found.problem, found.device).namespace(found.config)
        return with_scalars(found.plan, {**namespace, **self._op.scalars(found.problem)}, scalars)

    def _check_names(self, arrays: Mapping[str, Any]) -> None:
        unknown = sorted(arrays.keys() - self._tensors.keys())
        missing = [name for name in self.inputs if name not in arrays]
        if unknown or missing:
            what = f"has no argument {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"
            raise UsageError(f"{self._op.name} {what}; it takes {', '.join(self.inputs)}")

    def _by_copy(self, arrays: Mapping[str, Any], scalars: Mapping[str, float]) -> dict[str, Any]:
        """From the host's memory to the device and back; results are of the inputs' library, PyTorch or NumPy."""
        views = {name: host_view(array) for name, array in arrays.items()}
        fit = self.fit({name: view.shape for name, view in views.items()})
        check_on_host(arrays, views, fit.tensors, self.outputs)
        plan = self._plan(fit.best, scalars)
        images = {b.name: np.zeros(b.elements, numpy_dtype(b.dtype)) for b in plan.buffers if b.role != "workspace"}
        for name in self.inputs:
            tensor_view(images[fit.tensors[name].storage], fit.tensors[name])[...] = views[name]
        for name, before in plan.restores:  # what is changed in place is its own input
            images[before][...] = images[name]
        wanted = {fit.tensors[name].storage for name in self.outputs}
        found = self._runner.run(fit.best, plan, images, wanted)
        results = {name: arrays[name] for name in self.outputs if name in arrays}
        like = arrays[self.inputs[0]]
        if library_of(like) == "torch":
            missing = missing_outputs([*arrays], self.outputs)
            results |= make_outputs(like, fit.tensors, missing)
        for name in self.outputs:
            tensor = fit.tensors[name]
            result = tensor_view(found[tensor.storage], tensor)
            if name in results:
                host_view(results[name])[...] = result
            else:
                results[name] = result
        return {name: results[name] for name in self.outputs}


def kernel(
    op: str | None = None,
    *,
    device: str | None = None,
    db: str | Path | None = None,
    template: str | Path | None = None,
    reference: Named | Function | None = None,
    inputs: Named | Function | None = None,
    full_precision: bool = False,
    tune: str | None = None,
    **fields: Value,
) -> Kernel:
    """The best configuration known for a problem (see `autotune.best`), ready to be called.

    Args:
        op: `forward`, `backward`, or the op of `template`.
        device: `cuda`, `cuda:1`, … or `cpu` (the emulator); by default the GPU where there is one.
        db: path or URL of the database.
        template: a family of one's own.
        reference: the op's reference, where `template` declares its own op and does not name it.
        inputs: the function that makes its inputs for a search, likewise.
        full_precision: as for `autotune.best`.
        tune: where nothing is known of this very problem: `nearest` takes what is likely to be good, `quick` and
            `search` search first (seconds on a GPU, and once: what is found is recorded), `error` refuses. By default
            `AUTOTUNE_ON_MISS`, else `nearest`. Other lengths that calls bring are looked up as with `nearest`.
        fields: of the problem. Arrays of other lengths may be given in calls; they are then looked up.

    Raises:
        AutotuneError: as `autotune.best`; DeviceMissing for `cuda` without a GPU.
    """
    from autotune.gpus.present import present_gpu

    if device is not None:
        require_name(device)
    chosen = device or ("cuda" if present_gpu() is not None else "cpu")
    named = parse_device(chosen)
    if named.gpu is not None or named.kind == "replay":
        raise UsageError(f"device={device!r}: a kernel runs on 'cuda' or 'cpu'")

    def find(problem: Problem) -> Best:
        return best_of_lengths(
            op, device=chosen, db=db, template=template, reference=reference, inputs=inputs,
            full_precision=full_precision, **problem.fields,
        )  # fmt: skip

    def look() -> Best:
        return best(
            op, device=chosen, db=db, template=template, reference=reference, inputs=inputs,
            full_precision=full_precision, objective="time", max_error=None, **fields,
        )  # fmt: skip

    found = found_or_tuned(
        look, way_of(tune), op=op, device=chosen, db=db, template=() if template is None else template,
        reference=reference, inputs=inputs, full_precision=full_precision, **fields,
    )  # fmt: skip
    driver = cuda_driver() if named.kind == "cuda" else None
    return Kernel(found, find, driver, named.index)


def remember(known: dict[Any, Any], key: Any, made: Any) -> None:
    """Keep it; what was kept before goes when it is too much."""
    if len(known) >= _MOST_CALLS:
        known.clear()
    known[key] = made
