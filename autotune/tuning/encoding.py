"""How candidates become Optuna parameters and back."""

from collections.abc import Mapping
from typing import Protocol

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial

from autotune.core.candidate import Candidate
from autotune.core.values import Value
from autotune.tuning.joint_space import Families, Family

TEMPLATE = "template"


class Encoding(Protocol):
    """One way to write a candidate as parameters of a trial."""

    distributions: dict[str, BaseDistribution]

    def suggest(self, trial: Trial) -> Candidate:
        """Let the sampler choose; its choice need not be a valid configuration."""

    def parameters(self, candidate: Candidate) -> Mapping[str, Value]:
        """The parameters that stand for a candidate."""


class Tree:
    """Hierarchical: `template`, then `NAME.PARAM` of the chosen family only, all categorical."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self.distributions: dict[str, BaseDistribution] = {
            TEMPLATE: CategoricalDistribution([family.name for family in families])
        }
        for family in families:
            for name, values in family.parameters.items():
                self.distributions[_name(family, name)] = CategoricalDistribution(values)

    def suggest(self, trial: Trial) -> Candidate:
        """Choose a family, then its parameters."""
        choice = trial.suggest_categorical(TEMPLATE, [family.name for family in self._families])
        family = self._families[str(choice)]
        config: dict[str, Value] = {}
        for name, values in family.parameters.items():
            chosen = trial.suggest_categorical(_name(family, name), values)
            assert chosen is not None  # no parameter has None among its values
            config[name] = chosen
        return family.candidate(config)

    def parameters(self, candidate: Candidate) -> dict[str, Value]:
        """The family and its own parameters."""
        family = self._families[candidate.template]
        return {TEMPLATE: family.name} | {_name(family, name): value for name, value in candidate.values}

    def values(self, family: Family) -> dict[str, tuple[Value, ...]]:
        """The values of all parameters that stand for a candidate of this family."""
        own = {_name(family, name): values for name, values in family.parameters.items()}
        return {TEMPLATE: (family.name,), **own}


class Grille:
    """Flat and numerical: every parameter of every family is an index, those of other families are ignored.

    For samplers that need one static numerical space. Parameters with a single value are left out.
    """

    def __init__(self, families: Families) -> None:
        self._families = list(families)
        self.distributions: dict[str, BaseDistribution] = {}
        if len(self._families) > 1:
            self.distributions[TEMPLATE] = IntDistribution(0, len(self._families) - 1)
        for family in families:
            for name, values in family.parameters.items():
                if len(values) > 1:
                    self.distributions[_name(family, name)] = IntDistribution(0, len(values) - 1)

    def suggest(self, trial: Trial) -> Candidate:
        """Choose all indices, then read those of the chosen family."""
        chosen = {name: self._index(trial, name) for name in self.distributions}
        family = self._families[chosen.get(TEMPLATE, 0)]
        config = {name: values[chosen.get(_name(family, name), 0)] for name, values in family.parameters.items()}
        return family.candidate(config)

    def parameters(self, candidate: Candidate) -> dict[str, Value]:
        """Indices of the candidate's values; 0 for the parameters of other families."""
        written: dict[str, Value] = dict.fromkeys(self.distributions, 0)
        for place, family in enumerate(self._families):
            if family.name == candidate.template:
                if TEMPLATE in written:
                    written[TEMPLATE] = place
                for name, value in candidate.values:
                    if _name(family, name) in written:
                        written[_name(family, name)] = family.parameters[name].index(value)
        return written

    def _index(self, trial: Trial, name: str) -> int:
        distribution = self.distributions[name]
        assert isinstance(distribution, IntDistribution)
        return trial.suggest_int(name, distribution.low, distribution.high)


def _name(family: Family, parameter: str) -> str:
    return f"{family.name}.{parameter}"
