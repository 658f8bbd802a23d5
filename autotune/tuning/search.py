"""The search as Python calls. What is heavy is imported when called."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.arguments import require_flags, require_function, require_text, require_values, require_whole
from autotune.core.errors import UsageError
from autotune.core.values import Value

if TYPE_CHECKING:
    from autotune.devices.factory import DeviceOpener
    from autotune.families.user_functions import Named
    from autotune.tuning.events import Listener
    from autotune.tuning.objective import Demand
    from autotune.tuning.pins import Wanted
    from autotune.tuning.result import SearchResult


def search(  # noqa: PLR0913 - the public call; every argument is a choice that the command line offers too
    op: str | None = None,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    sampler: str = "parzen",
    seed: int = 0,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    spills: bool = True,
    quick: bool = False,
    template: str | Path | Sequence[str | Path] = (),
    params: "Wanted | None" = None,
    reference: "Named | Callable[..., object] | None" = None,
    inputs: "Named | Callable[..., object] | None" = None,
    full_precision: bool = False,
    objective: str = "time",
    max_error: float | None = None,
    energy_seconds: float | None = None,
    clock: int | None = None,
    power_limit: int | None = None,
    db: str | Path | None = None,
    progress: "Listener | None" = None,
    **fields: Value,
) -> "SearchResult":
    """Search for the fastest kernel of one problem; go on where an earlier search of it ended.

    >>> import autotune
    >>> result = autotune.search("backward", T=1024, trials=10)  # doctest: +SKIP
    >>> result.best.candidate.config  # doctest: +SKIP

    Args:
        op: what is computed; by default the op of a template file of your own, else `forward`.
        trials: candidates to evaluate, those of earlier runs included. Default: 40 on the emulator, 100 on a GPU,
            all of them for the sampler `grid`.
        timeout: seconds after which no more are begun; what is under way has a tenth of them, at most 5 s, to end.
            The winner is then timed (10 s at most) and examined. Default: 150 on the emulator, none on a GPU.
        sampler: one of `autotune.tuning.samplers.SAMPLERS`.
        seed: of the sampler and of the inputs.
        device: `cuda`, `cuda:1` or `cpu`; default the GPU if there is one, else `cpu`.
        target: on `cpu`, the GPU whose time is estimated.
        jobs: builds at a time; default one a core.
        spills: whether the winner may be a kernel whose registers spill into memory.
        quick: verify and time only the candidates that are likely to be good, at most 12, winners of near problems and
            the families' starts; leave out `trials` then.
        template: a family by name, or the path of a `.cu.j2` file, or several; default all that support the problem.
        params: values to keep of the families' parameters, such as `{"BLOCK_M": [64, 128], "UNROLL": 4}`; all others
            stay as they are. With one value for each parameter, that configuration alone is timed.
        reference: CPU reference of a user's own op: a function, be it a notebook's, or `module:function`; by default
            the one that its template names.
        inputs: the function that makes its inputs, likewise; by default they are random.
        full_precision: leave out families whose products are not those of the dtype's elements (3xTF32 for fp32).
        objective: `time`, `energy` (of a call, idle power included), `edp` (energy times time) or `time,energy`, which
            ends with all candidates that no other beats in both (`result.pareto`).
        max_error: the part of the error bound that a candidate may use, such as 0.5; what errs more is not feasible.
        energy_seconds: how long a candidate is repeated for one measurement of its energy; default half a second.
        clock: MHz to lock the GPU's clock to while the search runs (root alone may); its results are kept apart.
        power_limit: watts to limit the GPU to, likewise.
        db: path or SQLAlchemy URL of the database.
        progress: called with a `Progress` as the search goes on.
        fields: of the problem; the op's defaults for those left out.

    Returns:
        The result; its `best` is None when no candidate was right and ran.

    Raises:
        UsageError: a wrong option, problem or template.
        DeviceMissing: the device asked for is not here, does not tell its energy, or may not be limited by this user.
        NoFeasibleConfiguration: constraints rule out every configuration.
    """
    named = [template] if isinstance(template, str | Path) else template
    if not isinstance(named, Sequence) or not all(isinstance(one, str | Path) for one in named):
        raise UsageError(f"template={template!r} must be a family's name, the path of a .cu.j2 file, or a list of them")
    results = sweep(
        op, [fields], trials=trials, timeout=timeout, sampler=sampler, seed=seed, device=device, target=target,
        jobs=jobs, spills=spills, quick=quick, templates=[str(one) for one in named], params=params,
        reference=reference, inputs=inputs,
        full_precision=full_precision, objective=objective, max_error=max_error, energy_seconds=energy_seconds,
        clock=clock, power_limit=power_limit, db=db, progress=progress,
    )  # fmt: skip
    [result] = results
    return result


def sweep(  # noqa: PLR0913 - as `search`
    op: str | None,
    problems: Iterable[Mapping[str, Value]],
    *,
    trials: int | None = None,
    timeout: float | None = None,
    sampler: str = "parzen",
    seed: int = 0,
    device: str | None = None,
    target: str | None = None,
    jobs: int | None = None,
    spills: bool = True,
    quick: bool = False,
    templates: Sequence[str] = (),
    params: "Wanted | None" = None,
    reference: "Named | Callable[..., object] | None" = None,
    inputs: "Named | Callable[..., object] | None" = None,
    full_precision: bool = False,
    objective: str = "time",
    max_error: float | None = None,
    energy_seconds: float | None = None,
    clock: int | None = None,
    power_limit: int | None = None,
    db: str | Path | None = None,
    progress: "Listener | None" = None,
) -> "Iterator[SearchResult]":
    """Search several problems of one op, one after the other; arguments as `search`. All are checked beforehand."""
    from autotune.devices.factory import choose_device
    from autotune.families.template import names_file
    from autotune.families.user_functions import named
    from autotune.gpus.cap import Cap
    from autotune.gpus.capped import capped
    from autotune.tuning.beginning import begin
    from autotune.tuning.choose import choose_subject
    from autotune.tuning.events import silent
    from autotune.tuning.objective import ENERGY_S, Demand, find_objective
    from autotune.tuning.pins import pinned
    from autotune.tuning.search_options import Options

    require_flags(full_precision=full_precision)
    if target is not None:
        require_text("target", target, "h200")
    if params is not None:
        require_values("params", params)
    if progress is not None:
        require_function("progress", progress)
    for name, limit in (("clock", clock), ("power_limit", power_limit)):
        if limit is not None:
            require_whole(name, limit, 1)
    demand = Demand(find_objective(objective), max_error, ENERGY_S if energy_seconds is None else energy_seconds)
    options = Options(trials, timeout, sampler, seed, jobs, spills=spills, quick=quick, demand=demand).checked()
    own = any(names_file(text) for text in templates)
    subject = choose_subject(
        "forward" if op is None and not own else op, templates, named(reference), inputs=named(inputs, "inputs"),
        full_precision=full_precision,
    )  # fmt: skip
    subject = pinned(subject, params or {})
    chosen = [subject.problem(fields) for fields in problems]
    cap = Cap(clock, power_limit)
    opener = choose_device(device, target).capped(cap)
    _require_meter(demand, opener)
    with capped(cap, opener.gpu_index), closing(begin(subject, chosen[0], opener, options)) as first:
        from autotune.store import open_store
        from autotune.tuning.session import search_begun

        with open_store(db) as store:
            for place, problem in enumerate(chosen):
                begun = begin(subject, problem, opener, options) if place else first
                with closing(begun):
                    yield search_begun(begun, options.budget(opener), subject, options, store, progress or silent)


def _require_meter(demand: "Demand", opener: "DeviceOpener") -> None:
    """Raise UsageError where energies are asked of a device that estimates."""
    if demand.objective.metered and opener.estimates:
        raise UsageError(
            f"objective={demand.objective.name}: energy is measured on a GPU alone, and no model estimates it here; "
            "search with --device cuda on a machine with one, or with --objective time"
        )
