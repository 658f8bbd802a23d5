"""What was tried for a problem and came out wrong: a look-up does not answer with it, however near or likely it is."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from autotune.core.candidate import Candidate
from autotune.core.errors import NoFeasibleConfiguration
from autotune.core.problem import Problem
from autotune.estimate.fit import Known
from autotune.gpus.spec import DeviceSpec
from autotune.store.entries import Failure, Winners

Said = TypeVar("Said")


class Failed:
    """The failures on record of one problem, on GPUs of an architecture; read when first asked for."""

    def __init__(self, winners: Winners, problem: Problem, spec: DeviceSpec) -> None:
        self._winners, self._problem, self._spec = winners, problem, spec

    @cached_property
    def _failures(self) -> Mapping[object, Failure]:
        failures = self._winners.failures(self._problem, self._spec.compute_capability)
        return {_key(failure.candidate): failure for failure in failures}

    def why(self, candidate: Candidate) -> str | None:
        """How a candidate came out when it was tried for the problem; None where no failure is on record."""
        failure = self._failures.get(_key(candidate))
        if failure is None:
            return None
        return f"{candidate} was tried for it on {failure.device}: {failure.outcome} (record {failure.measurement_id})"

    def never(self, candidate: Candidate) -> bool:
        """Whether no failure of a candidate is on record."""
        return self.why(candidate) is None

    def left_out(self, known: Mapping[Known, Said]) -> dict[Known, Said]:
        """What is known, without those that failed here."""
        return {one: said for one, said in known.items() if self.why(one.candidate) is None}

    def first_right(self, candidates: Iterable[Candidate]) -> Candidate:
        """The first that did not fail.

        Raises:
            NoFeasibleConfiguration: all have; the message says how the first came out.
        """
        reasons = []
        for candidate in candidates:
            why = self.why(candidate)
            if why is None:
                return candidate
            reasons.append(why)
        raise NoFeasibleConfiguration(
            f"nothing right is known for {self._problem}: {reasons[0]}; `autotune search` tries other configurations"
        )


def _key(candidate: Candidate) -> tuple[str, str, frozenset[tuple[str, Any]]]:
    """The same for any order of parameters."""
    return candidate.template, candidate.template_hash, frozenset(candidate.values)
