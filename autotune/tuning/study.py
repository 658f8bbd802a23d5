"""The Optuna study behind the samplers that learn. It lives in memory; the database holds the truth."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from autotune.core.candidate import Candidate
from autotune.tuning.encoding import Encoding
from autotune.tuning.strategy import Proposal

WITHDRAWN = "withdrawn"
"""Attribute of a trial that was given up before anything was known of it."""

_PENALTY = math.log(4.0)


def accept_experiments() -> None:
    """Let Optuna be used as it is meant to be used here without a warning for each part that may still change."""
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


class OptunaStrategy:
    """Asks an Optuna sampler, minimising log(milliseconds).

    Candidates without a time are told as PRUNED, never as FAIL: a sampler forgets failed trials and proposes them
    again for ever. Samplers that ignore pruned trials as well (`penalise`) are told 4 times the worst time so far.
    """

    def __init__(self, sampler: BaseSampler, encoding: Encoding, *, penalise: bool = False) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = optuna.create_study(direction="minimize", sampler=sampler)
        self._encoding = encoding
        self._penalise = penalise
        self._worst: float | None = None
        self._open: dict[int, Trial] = {}

    def ask(self) -> Proposal:
        trial = self.study.ask()
        candidate = self._encoding.suggest(trial)
        self._open[trial.number] = trial
        return Proposal(candidate, trial.number)

    def propose(self, candidate: Candidate) -> Proposal:
        """A trial with this candidate's parameters, which the sampler knows to be running."""
        self.study.enqueue_trial(dict(self._encoding.parameters(candidate)))
        trial = self.study.ask()
        self._encoding.suggest(trial)
        self._open[trial.number] = trial
        return Proposal(candidate, trial.number)

    def tell(self, proposal: Proposal, value: float | None) -> None:
        trial = self._open.pop(proposal.number)
        value = self._known(value)
        if value is None:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, value)

    def withdraw(self, proposal: Proposal) -> None:
        trial = self._open.pop(proposal.number)
        trial.set_user_attr(WITHDRAWN, value=True)
        self.study.tell(trial, state=TrialState.FAIL)  # samplers forget failed trials

    def order(self, candidates: Sequence[Candidate]) -> list[Candidate] | None:
        """By the sampler's `promise`, where it has one."""
        promise = getattr(self.study.sampler, "promise", None)
        if promise is None:
            return None
        scores = promise(self.study, [self._encoding.parameters(candidate) for candidate in candidates])
        if scores is None:
            return None
        places = sorted(range(len(candidates)), key=lambda place: -scores[place])
        return [candidates[place] for place in places]

    def add(self, candidate: Candidate, value: float | None) -> None:
        self.study.add_trial(_finished(self._encoding, candidate, self._known(value)))

    def _known(self, value: float | None) -> float | None:
        if value is not None:
            self._worst = value if self._worst is None else max(self._worst, value)
            return value
        return self._worst + _PENALTY if self._penalise and self._worst is not None else None


def _finished(encoding: Encoding, candidate: Candidate, value: float | None) -> FrozenTrial:
    parameters: Mapping[str, Any] = encoding.parameters(candidate)
    distributions: dict[str, BaseDistribution] = {name: encoding.distributions[name] for name in parameters}
    state = TrialState.PRUNED if value is None else TrialState.COMPLETE
    return create_trial(state=state, value=value, params=dict(parameters), distributions=distributions)
