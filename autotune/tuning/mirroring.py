"""Searches as studies of Optuna, in a storage that optuna-dashboard reads.

A study is a mirror of what the database holds: mirrored again, new trials are added to it; where something that it
holds has changed since (a second verdict, a rejected winner, forgotten records), it is made anew.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.core.database_files import SQLITE_MAGIC
from autotune.core.errors import StoreError, UsageError
from autotune.core.files import not_written
from autotune.core.outcome import Outcome
from autotune.core.passwords import hidden
from autotune.core.values import Value
from autotune.families.template import builtin_templates
from autotune.store.records import SearchSummary, StoredMeasurement, StoredSearch
from autotune.store.store import Store
from autotune.tuning.encoding import TEMPLATE
from autotune.tuning.study import accept_experiments

STATES = {Outcome.OK: TrialState.COMPLETE, Outcome.PRUNED: TrialState.PRUNED, Outcome.INFEASIBLE: TrialState.PRUNED}
"""What outcomes are to Optuna; all others are `FAIL`, and every trial says its outcome as an attribute."""

_OURS = "autotune"  # the study's attribute that says whose mirror it is
_WHICH, _DIGEST = "autotune:trial", "autotune:digest"
_LONGEST_NAME = 512

Distributions = Mapping[str, CategoricalDistribution]


@dataclass(frozen=True)
class Mirrored:
    """What was done for one search. `anew`: the study was there with something that is no longer so."""

    study: str
    added: int
    known: int
    outcomes: Mapping[Outcome, int]
    anew: bool = False


def mirror_searches(store: Store, searches: Iterable[SearchSummary], target: str) -> list[Mirrored]:
    """Mirror searches into an Optuna storage, a study each; done twice, nothing is there twice.

    Args:
        store: the database.
        searches: of it.
        target: SQLAlchemy URL of Optuna's RDB storage, or the path of a journal file.

    Raises:
        UsageError: a target that cannot be one, or a study of one of the names that is no mirror.
        StoreError: the storage cannot be written.
    """
    accept_experiments()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = _open(target, store)
    try:
        return [_mirror(store, summary.search, storage) for summary in searches]
    except (UsageError, StoreError):
        raise
    except Exception as error:  # a storage raises what its database does: SQLAlchemy's errors, OSError, its own
        raise StoreError(f"cannot write {hidden(target)}: {' '.join(str(error).split())[:300]}") from error


def study_name(search: StoredSearch) -> str:
    """What a search is called in Optuna: it tells the problem, the device, the sampler, and the key that is its own."""
    settings = search.settings
    name = f"{search.problem.key} on {search.device}, {settings.get('sampler', '?')} seed {settings.get('seed', '?')}"
    ending = f" [{search.key[:8]}]"
    return name[: _LONGEST_NAME - len(ending)] + ending


def distributions_of(records: Sequence[StoredMeasurement], families: Iterable[str] = ()) -> Distributions:
    """`template`, then `NAME.PARAM` of each family: the values that the family lists where it is at hand as it was.

    Others have the values that occur. `families`: those of the search, whether they occur or not.
    """
    values: dict[str, dict[Value, None]] = {TEMPLATE: dict.fromkeys(families)}
    versions = {(record.problem.op, record.candidate.template, record.candidate.template_hash) for record in records}
    for op in {op for op, _, _ in versions}:
        for template in builtin_templates(op):
            if (op, template.name, template.hash) in versions:
                for parameter in template.parameters:
                    values[f"{template.name}.{parameter.name}"] = dict.fromkeys(parameter.values)
    listed = set(values) - {TEMPLATE}
    for record in records:
        name = record.candidate.template
        values[TEMPLATE][name] = None
        for own, value in record.candidate.values:
            values.setdefault(f"{name}.{own}", {})[value] = None
    return {
        name: CategoricalDistribution(list(found) if name in listed else sorted(found, key=_order))
        for name, found in values.items()
    }


def _order(value: Value | None) -> tuple[bool, float, str]:
    return (True, 0.0, str(value)) if isinstance(value, str) or value is None else (False, float(value), "")


def trial_of(record: StoredMeasurement, distributions: Distributions, number: int = 0) -> FrozenTrial:
    """A record as a trial: its value is its time in milliseconds, of those alone that count as times."""
    measurement, name = record.measurement, record.candidate.template
    params: dict[str, Value] = {TEMPLATE: name}
    params |= {f"{name}.{parameter}": value for parameter, value in record.candidate.values}
    state = STATES.get(measurement.outcome, TrialState.FAIL)
    if measurement.timing is not None and not measurement.timing.counted:
        state = TrialState.PRUNED  # a figure that does not compare with others
    ended = record.created_at.astimezone().replace(tzinfo=None)  # Optuna's times are local and do not say so
    took = timedelta(seconds=max(0.0, measurement.build_seconds + measurement.device_seconds))
    return FrozenTrial(
        number=number, trial_id=number, state=state, value=measurement.ms if state == TrialState.COMPLETE else None,
        datetime_start=ended - took, datetime_complete=ended, params=params,
        distributions={parameter: distributions[parameter] for parameter in params},
        user_attrs=_attributes(record), system_attrs={}, intermediate_values={},
    )  # fmt: skip


def _attributes(record: StoredMeasurement) -> dict[str, Any]:
    """What a dashboard shows beside a trial's parameters."""
    measurement, timing = record.measurement, record.measurement.timing
    found: dict[str, Any] = {
        "record": record.id, "outcome": measurement.outcome.value, "message": measurement.message[:1000] or None,
        "time": None if timing is None else timing.label, "ms": None if timing is None else timing.median_ms,
        "problem": record.problem.key, "device": record.device, "template_hash": record.candidate.template_hash,
        "source_hash": record.source_hash, "driver": record.driver or None, "compiler": record.compiler or None,
        "registers": max((kernel.registers for kernel in measurement.resources), default=None),
        "spill_bytes": sum(kernel.spill_bytes for kernel in measurement.resources) if measurement.resources else None,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _mirror(store: Store, search: StoredSearch, storage: BaseStorage) -> Mirrored:
    records = list(store.measurements(search.problem, search.device, search_id=search.id))
    distributions = distributions_of(records, search.settings.get("templates", ()))
    wanted = {_which(record): _marked(record, trial_of(record, distributions)) for record in records}
    outcomes = Counter(record.measurement.outcome for record in records)
    name = study_name(search)
    study, anew = _study(name, search, storage), False
    found = {trial.user_attrs.get(_WHICH): trial.user_attrs.get(_DIGEST) for trial in study.get_trials(deepcopy=False)}
    if any(which not in wanted or wanted[which].user_attrs[_DIGEST] != digest for which, digest in found.items()):
        optuna.delete_study(study_name=name, storage=storage)
        study, found, anew = _study(name, search, storage), {}, True
    new = [trial for which, trial in wanted.items() if which not in found]
    kinds = {str(trial.user_attrs["time"]) for trial in wanted.values() if trial.state == TrialState.COMPLETE}
    if kinds:
        study.set_metric_names([f"{' and '.join(sorted(kinds))} ms"])
    study.add_trials(new)
    return Mirrored(name, len(new), len(found), outcomes, anew)


def _study(name: str, search: StoredSearch, storage: BaseStorage) -> optuna.Study:
    study = optuna.create_study(study_name=name, storage=storage, direction="minimize", load_if_exists=True)
    about = {"search": search.key, "problem": search.problem.key, "device": search.device}
    if study.user_attrs.get(_OURS) is None:
        if study.get_trials(deepcopy=False):
            raise UsageError(f"the study {name!r} is there already and is no mirror of a search: name another storage")
        study.set_user_attr(_OURS, about)
        for attribute in ("sampler", "seed", "part"):
            if attribute in search.settings:
                study.set_user_attr(attribute, search.settings[attribute])
    return study


def _which(record: StoredMeasurement) -> str:
    """Which trial of its search a record is: what a database has once, whatever number it gave it."""
    parts = (record.candidate.key, record.candidate.template_hash, record.source_hash, record.driver, record.compiler)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _marked(record: StoredMeasurement, trial: FrozenTrial) -> FrozenTrial:
    told = {name: value for name, value in trial.user_attrs.items() if name != "record"}
    choices = {name: repr(distribution) for name, distribution in trial.distributions.items()}
    text = json.dumps([trial.state.name, trial.value, trial.params, choices, told], sort_keys=True)
    trial.user_attrs[_WHICH] = _which(record)
    trial.user_attrs[_DIGEST] = hashlib.sha256(text.encode()).hexdigest()[:24]
    return trial


def _open(target: str, store: Store) -> BaseStorage:
    if "://" in target:
        file = target.removeprefix("sqlite:///").partition("?")[0]
        if target.startswith("sqlite:") and file and Path(file).resolve() == Path(store.location).resolve():
            raise UsageError(f"{target} is the database of the searches itself: mirror them into another file")
        try:
            return RDBStorage(target)
        except Exception as error:
            raise UsageError(
                f"Optuna cannot use {hidden(target)} as a storage: {hidden(' '.join(str(error).split())[:300])}"
            ) from error
    path = Path(target)
    _check_journal(path)
    try:
        from optuna.storages.journal import JournalFileBackend

        return JournalStorage(JournalFileBackend(str(path)))
    except OSError as error:
        raise not_written(f"the journal {target}", error) from error


def _check_journal(path: Path) -> None:
    """Optuna appends to whatever file it is given: refuse what is no journal.

    Raises:
        UsageError: it is something else, or there is no such folder.
    """
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for the journal {path.name}")
    try:
        with path.open("rb") as file:
            first = file.readline(10_000)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot read the journal {path}: {error.strerror}") from error
    if first.startswith(SQLITE_MAGIC):
        raise UsageError(f"{path} is an SQLite database: write sqlite:///{path} to mirror into it")
    try:
        journal = not first.strip() or "op_code" in json.loads(first)
    except (ValueError, TypeError):
        journal = False
    if not journal:
        raise UsageError(f"{path} is no journal of Optuna's, and was left as it is: name a new file")
