"""What a search begins before anything else."""

from contextlib import closing
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.devices.factory import CpuOpener
from autotune.gpus.known import gpu
from autotune.tuning import beginning as module
from autotune.tuning.beginning import begin
from autotune.tuning.choose import choose_families, choose_subject
from autotune.tuning.pipeline import Pipeline
from autotune.tuning.search_options import Options

SPEC = gpu("h200")
SUBJECT = choose_subject("backward")
PROBLEM = SUBJECT.problem({})


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> list[Candidate]:
    found: list[Candidate] = []

    class Idle(Pipeline):
        def __init__(self, *arguments: Any) -> None:
            """Opens no device."""

        def expect(self, candidate: Candidate) -> None:
            found.append(candidate)

        def close(self) -> None:
            """Nothing was begun."""

    monkeypatch.setattr(module, "Pipeline", Idle)
    return found


def test_the_starts_that_are_asked_first_are_built_a_core_each(expected: list[Candidate]) -> None:
    with closing(begin(SUBJECT, PROBLEM, CpuOpener(SPEC), Options(jobs=5), start=3.0)) as begun:
        assert begun.opened.identity.name == "cpu:h200"
        assert (begun.start, begun.task.problem, begun.client.starts) == (3.0, PROBLEM, 0)
    asked = choose_families(SUBJECT.templates, PROBLEM, SPEC).starts()
    assert len(expected) == 5
    assert expected == [candidate for candidate in asked if candidate in expected]


@pytest.mark.parametrize(
    ("options", "builds"),
    [
        (Options(jobs=5, trials=len(SUBJECT.templates) + 2), 2),
        (Options(jobs=5, trials=1), 0),
        (Options(jobs=5, sampler="random"), 0),  # begins elsewhere
        (Options(jobs=5, quick=True), 0),  # chooses by what is recorded
    ],
)
def test_no_more_than_will_be_asked(expected: list[Candidate], options: Options, builds: int) -> None:
    begin(SUBJECT, PROBLEM, CpuOpener(SPEC), options).close()
    assert len(expected) == builds
