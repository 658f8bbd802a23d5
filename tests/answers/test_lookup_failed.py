"""A configuration that is on record as failed for a problem is no answer for it, however near or likely it is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.answers.best import Best
from autotune.answers.lookup import best_of_lengths
from autotune.core.errors import NoFeasibleConfiguration
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.store import open_store
from tests.store.store_records import CPU_H200, H100, H200, SOURCE, failed, ok, wrong

PROBLEMS: list[dict[str, Any]] = [
    {"op": "forward", "B": 4, "NH": 12, "T": 1030},  # a near winner
    {"op": "forward", "B": 1, "NH": 1, "T": 64, "HS": 48, "dtype": "fp32"},  # a default, or a start
    {"op": "backward", "B": 2, "NH": 32, "T": 2000, "HS": 88, "dtype": "bf16"},
]
OTHERWISE = [
    failed(outcome) for outcome in (Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR, Outcome.CRASH, Outcome.TIMEOUT)
]


def answer(db: Path, fields: dict[str, Any]) -> Best:
    return autotune.best(device="h200", db=db, **fields)


def record(db: Path, found: Best, measurement: Measurement, identity: DeviceIdentity = H200, **changes: Any) -> None:
    with open_store(db) as store:
        store.record(identity, found.problem, replace(found.candidate, **changes), SOURCE, measurement)


@pytest.mark.parametrize("measurement", [wrong(), *OTHERWISE], ids=lambda m: m.outcome.value)
@pytest.mark.parametrize("fields", PROBLEMS, ids=str)
def test_what_failed_is_not_answered(fields: dict[str, Any], measurement: Measurement, tmp_path: Path) -> None:
    first = answer(tmp_path / "a.db", fields)
    record(tmp_path / "a.db", first, measurement)
    second = answer(tmp_path / "a.db", fields)
    assert second.candidate != first.candidate
    elsewhere = answer(tmp_path / "a.db", {**fields, "B": fields["B"] + 1})
    assert elsewhere.answer != "exact", "a failure is of one problem alone"


@pytest.mark.parametrize("identity", [H200, CPU_H200], ids=str)
def test_on_the_emulator_wrong_is_wrong_too(identity: DeviceIdentity, tmp_path: Path) -> None:
    first = answer(tmp_path / "a.db", PROBLEMS[0])
    record(tmp_path / "a.db", first, wrong(), identity)
    assert answer(tmp_path / "a.db", PROBLEMS[0]).candidate != first.candidate


def test_failures_of_other_templates_and_parameters_in_another_order(tmp_path: Path) -> None:
    first = answer(tmp_path / "a.db", PROBLEMS[0])
    record(tmp_path / "a.db", first, wrong(), template_hash="0" * 16)
    assert answer(tmp_path / "a.db", PROBLEMS[0]).candidate == first.candidate
    record(tmp_path / "a.db", first, wrong(), values=first.candidate.values[::-1])
    assert answer(tmp_path / "a.db", PROBLEMS[0]).candidate != first.candidate


def test_a_failure_that_was_right_later_does_not_count(tmp_path: Path) -> None:
    first = answer(tmp_path / "a.db", PROBLEMS[1])
    record(tmp_path / "a.db", first, failed(Outcome.TIMEOUT))
    record(tmp_path / "a.db", first, ok(0.5))
    assert answer(tmp_path / "a.db", PROBLEMS[1]).candidate == first.candidate


@pytest.mark.parametrize("measurement", OTHERWISE, ids=lambda m: m.outcome.value)
def test_what_the_emulator_is_too_slow_for_says_nothing_of_a_gpu(measurement: Measurement, tmp_path: Path) -> None:
    first = answer(tmp_path / "a.db", PROBLEMS[0])
    record(tmp_path / "a.db", first, measurement, CPU_H200)
    assert answer(tmp_path / "a.db", PROBLEMS[0]).candidate == first.candidate


def test_where_all_has_failed_nothing_is_answered(tmp_path: Path) -> None:
    only = {"op": "forward", "B": 1, "NH": 1, "T": 64, "HS": 512, "dtype": "fp32"}
    record(tmp_path / "a.db", answer(tmp_path / "a.db", only), wrong())
    with pytest.raises(NoFeasibleConfiguration, match=r"nothing right is known for .*: wrong_result \(record 1\)"):
        answer(tmp_path / "a.db", only)


def test_lengths_next_to_others_are_not_answered_with_what_failed(tmp_path: Path) -> None:
    """A callable's other lengths are answered as those next to them are."""
    fields: dict[str, Any] = {"B": 4, "NH": 12, "T": 1030}
    first = best_of_lengths("forward", device="h200", db=tmp_path / "a.db", **fields)
    record(tmp_path / "a.db", first, wrong())
    second = best_of_lengths("forward", device="h200", db=tmp_path / "a.db", **fields)
    assert second.candidate != first.candidate


def test_another_architectures_failures_do_not_count(tmp_path: Path) -> None:
    ampere = DeviceIdentity("cuda", gpu("a100"))
    assert ampere.spec.compute_capability != H100.spec.compute_capability
    first = answer(tmp_path / "a.db", PROBLEMS[0])
    record(tmp_path / "a.db", first, wrong(), ampere)
    assert answer(tmp_path / "a.db", PROBLEMS[0]).candidate == first.candidate
