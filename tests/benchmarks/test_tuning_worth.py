"""What tuning is worth, from made-up records: each figure as it follows from their times."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.ops.registry import get_op
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners
from benchmarks import tuning_worth
from benchmarks.tuning_worth import (
    group_table,
    parameter_tables,
    searched,
    transfer_summary,
    transfer_tables,
    worth_table,
)

LINE = shipped_winners()[0]
SHORT, LONG = (get_op("forward").problem(T=T) for T in (512, 4096))
A, B, DEFAULT = (make_candidate("fam", "hash", {"BLOCK": block, "STAGES": 2}) for block in (32, 64, 128))


def line(problem: Problem, candidate: Candidate, ms: float, outcome: Outcome = Outcome.OK, **more: Any) -> Line:
    assert LINE.measurement.timing is not None
    timing = replace(LINE.measurement.timing, median_ms=ms, q1_ms=ms, q3_ms=ms, min_ms=ms)
    measurement = replace(LINE.measurement, outcome=outcome, timing=timing)
    return replace(LINE, **{"record": "measurement", "stage": "trial", **more}, problem=problem, candidate=candidate,
                   measurement=measurement)  # fmt: skip


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    monkeypatch.setattr(tuning_worth, "family_defaults", lambda problem, spec: {"fam": DEFAULT})
    monkeypatch.setattr(tuning_worth, "unsuggested", lambda op: {"fam": B})
    failed = replace(line(SHORT, B, 0.1), measurement=replace(LINE.measurement, outcome=Outcome.CRASH, timing=None))
    return [
        line(SHORT, A, 1.0), line(SHORT, DEFAULT, 2.0, Outcome.PRUNED), failed,
        line(SHORT, A, 1.1, stage="final"), line(SHORT, A, 1.1, stage="final", record="winner"),
        line(LONG, A, 12.0), line(LONG, B, 10.0), line(LONG, DEFAULT, 10.4),
        line(LONG, B, 10.5, stage="final", record="winner"),
    ]  # fmt: skip


def test_winners_beside_defaults_and_other_trials(records: list[Line]) -> None:
    lines = worth_table(searched(records, "h200")).splitlines()
    assert lines[2] == ("| forward fp16 HS=64 causal T=512 B=4 NH=12 | 2 | fam | 1.0000 | 2.00x | 1.50x | 1.90x |")
    assert lines[3] == ("| forward fp16 HS=64 causal T=4096 B=4 NH=12 | 3 | fam | 10.0000 | 1.04x | 1.04x | 1.17x |")
    assert lines[5] == ("Default over winner: geometric mean 1.44, most 2.00, 1 of 2 more than 5 % slower.")


def test_groups_have_means_of_what_was_measured(records: list[Line]) -> None:
    """Starting: 2.0 and 1.04; without suggestions: B, which failed on the short problem and won the long one."""
    lines = group_table(searched(records, "h200")).splitlines()
    assert lines[2] == "| forward | fp16 | 64 | causal | `fam` | 2 | 1.44 (2.00) | 1.00 (1.00) | 1.25 | 1.49 |"
    assert lines[3] == "| all | | | | | 2 | 1.44 (2.00) | 1.00 (1.00) | 1.25 | 1.49 |"


def test_only_measured_pairs_count(records: list[Line]) -> None:
    found = searched(records, "h200")
    text = transfer_tables(found)
    assert "| T=512 B=4 NH=12 | 1.20x | 1.00x |" in text  # its winner A on the long problem
    assert "| T=4096 B=4 NH=12 | 1.00x |  |" in text  # B failed on the short one
    assert "pairs measured): 1.200 times the own one's time, most 1.20; 1 pairs more than 5 % slower." in (
        transfer_summary(found)
    )
    # A: 1.0 and 1.2; the default: 2.0 and 1.04.
    assert "measured on all: 1.095 times the winners' times (geometric mean), at most 1.200: fam BLOCK=32" in text


def test_parameters_that_vary_are_columns(records: list[Line]) -> None:
    text = parameter_tables(searched(records, "h200"))
    assert "forward, `fam`; the same for all: STAGES=2." in text
    assert "| problem | BLOCK |" in text
    assert "| fp16 HS=64 causal T=512 B=4 NH=12 | 32 |" in text
    assert "| fp16 HS=64 causal T=4096 B=4 NH=12 | 64 |" in text


def test_other_gpus_and_problems_without_a_winner_are_left_out(records: list[Line]) -> None:
    assert searched(records, "h100") == []
    assert searched([one for one in records if not one.is_winner], "h200") == []


def test_a_winner_that_is_known_from_its_final_alone(records: list[Line]) -> None:
    [one] = searched([line(SHORT, A, 1.1, stage="final", record="winner")], "h200")
    assert one.best_ms == 1.1
    assert one.default_loss is None
    assert one.tail(0.9) == 1.0


def test_defaults_are_those_of_todays_families() -> None:
    defaults = tuning_worth.family_defaults(LINE.problem, LINE.identity.spec)
    assert {"flash_mma", "flash_simt", "unfused"} <= defaults.keys()
    assert all(candidate.template == name for name, candidate in defaults.items())
