"""Which parameters matter, by Optuna's own evaluators."""

import importlib.util
import math
import warnings
from collections.abc import Mapping

import optuna
from optuna.importance import BaseImportanceEvaluator, FanovaImportanceEvaluator, PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial

from autotune.report.page.sections import Section
from autotune.store.records import StoredMeasurement
from autotune.tuning.encoding import TEMPLATE
from autotune.tuning.mirroring import distributions_of, trial_of

LEAST = 5
"""Right trials of a family below which nothing is said."""


def importances_of(section: Section, family: str) -> Mapping[str, Mapping[str, float]] | str:
    """By evaluator and parameter, each evaluator's summing to 1; or why there are none.

    PED-ANOVA (arXiv:2304.10255) asks what it takes to be among the fastest tenth; fANOVA, where scikit-learn is
    installed, what explains the variance of log(ms).
    """
    records = _of_one_version([r for r in section.timed if r.candidate.template == family])
    if len(records) < LEAST:
        return f"{family}: importances need at least {LEAST} right trials, there are {len(records)}"
    if len({record.measurement.ms for record in records}) == 1:
        return f"{family}: all right trials take the same time, so no parameter matters"
    names = [f"{family}.{name}" for name, _ in records[0].candidate.values]
    varied = [name for at, name in enumerate(names) if len({r.candidate.values[at] for r in records}) > 1]
    if not varied:
        return f"{family}: no parameter was varied"
    study = _study(records)
    found = {}
    for name, evaluator in _evaluators().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = optuna.importance.get_param_importances(study, evaluator=evaluator, params=varied, target=_log_ms)
        if all(map(math.isfinite, values.values())):
            found[name] = {parameter.removeprefix(f"{family}."): float(value) for parameter, value in values.items()}
    return found or f"{family}: the evaluators found no importances"


def _evaluators() -> dict[str, BaseImportanceEvaluator]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, BaseImportanceEvaluator] = {"PED-ANOVA": PedAnovaImportanceEvaluator()}
        if importlib.util.find_spec("sklearn") is not None:
            found["fANOVA"] = FanovaImportanceEvaluator(seed=0)
    return found


def _of_one_version(records: list[StoredMeasurement]) -> list[StoredMeasurement]:
    """Those of the version of the family that was used last: others may have other parameters."""
    return [r for r in records if r.candidate.template_hash == records[-1].candidate.template_hash]


def _study(records: list[StoredMeasurement]) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize")
    distributions = distributions_of(records)
    for record in records:
        trial = trial_of(record, distributions)
        del trial.params[TEMPLATE], trial.distributions[TEMPLATE]
        study.add_trial(trial)
    return study


def _log_ms(trial: FrozenTrial) -> float:
    assert trial.value is not None  # records are right trials
    return math.log(trial.value)
