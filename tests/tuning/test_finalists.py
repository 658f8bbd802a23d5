"""The final that names the winner: new times, and those that turn out to be wrong."""

from pathlib import Path

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.tuning.finalists import hold_final
from autotune.tuning.history import Records
from autotune.tuning.ledger import Ledger
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, engine, failed, family, run, store, took

WRONG = "compared by the host: y: error 1 at (0, 0, 3)"


def once_more(candidate: Candidate) -> Measurement:
    """The fastest of the trials is wrong, the next one slower than it was, the third could not be timed."""
    x = candidate.config["X"]
    assert isinstance(x, int)
    if x == 0:
        return failed(Outcome.WRONG_RESULT, WRONG)
    return failed(Outcome.CRASH) if x == 2 else took(10.0 - x)


def searched(folder: Path) -> tuple[Records, Ledger, FunctionEvaluator]:
    """Four candidates, X=0 the fastest."""
    records = Records(store(folder), IDENTITY, PROBLEM)
    evaluator = FunctionEvaluator(lambda candidate: took(1.0 + int(candidate.config["X"])), again=once_more)
    return records, run(engine([family(X=range(4), Y=[2])], evaluator, records)), evaluator


def test_who_is_wrong_in_the_final_is_recorded_as_wrong(tmp_path: Path) -> None:
    records, ledger, evaluator = searched(tmp_path)
    final = hold_final(ledger.ranked(), records, ledger, evaluator)
    assert [(entry.candidate.config["X"], entry.ms) for entry in final] == [(3, 7.0), (1, 9.0)]
    assert [entry.candidate.config["X"] for entry in ledger.ranked()] == [1, 2, 3]
    assert ledger.outcomes == {Outcome.OK: 3, Outcome.WRONG_RESULT: 1}
    (stored,) = (
        record.measurement for record in records.store.measurements(PROBLEM) if record.candidate.config["X"] == 0
    )
    assert (stored.outcome, stored.message, stored.timing) == (Outcome.WRONG_RESULT, WRONG, None)
    known = ledger.get(evaluator.asked[0])
    assert known is not None
    assert known.measurement.message == WRONG
    standing = records.standing("measured")
    assert standing is not None
    assert standing.candidate.config["X"] != 0
