"""`--quick`: the few likely candidates, and no others."""

from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import UsageError
from autotune.core.problem import Problem
from autotune.families.template import builtin_templates
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store import open_store
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.choose import choose_families
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.quick import MOST_BUILDS, likely
from autotune.tuning.search_options import Options
from autotune.tuning.session import Session
from benchmarks.left_out import left_out
from benchmarks.model_problems import model_problems
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, family, took

H200 = DeviceIdentity("cuda", gpu("h200"))
FORWARD, BACKWARD = get_op("forward"), get_op("backward")


@pytest.mark.parametrize(
    "problem",
    [
        FORWARD.problem(),
        FORWARD.problem(B=3, NH=7, T=1000),
        FORWARD.problem(HS=80, dtype="bf16"),
        FORWARD.problem(B=16, NH=32, NH_kv=8, T=1, T_kv=4096, HS=128),
        FORWARD.problem(dtype="fp32"),
        BACKWARD.problem(B=2, NH=10, T=4096, T_kv=77, causal=False),
    ],
    ids=str,
)
def test_a_few_valid_and_distinct_ones_are_likely(problem: Problem, tmp_path: Path) -> None:
    templates = [t for t in builtin_templates(problem.op) if not t.front.historical]
    families = choose_families(templates, problem, H200.spec)
    with open_store(tmp_path / "empty.db") as store:
        found = likely(templates, families, Records(store, H200, problem))
    assert 1 <= len(found) <= MOST_BUILDS
    assert len(set(found)) == len(found)
    assert all(families.why_not(candidate) is None for candidate in found)


def test_the_winner_of_the_very_problem_is_the_likeliest(tmp_path: Path) -> None:
    problem = FORWARD.problem(B=4, NH=16, T=4096, HS=128, dtype="fp16")
    templates = [t for t in builtin_templates("forward") if not t.front.historical]
    families = choose_families(templates, problem, H200.spec)
    with open_store(tmp_path / "own.db") as store:
        first, *_ = likely(templates, families, Records(store, H200, problem))
        slow = families[first.template].candidate(families[first.template].defaults)
        store.record(H200, problem, slow, "hash", took(0.0001))
        assert likely(templates, families, Records(store, H200, problem))[0] == slow != first


@pytest.mark.parametrize(("HS", "other"), [(80, 96), (72, 96), (96, 80), (40, 64)])
def test_what_won_for_heads_whose_tiles_are_as_wide_is_likely(HS: int, other: int, tmp_path: Path) -> None:
    """And what won for wider or narrower tiles is not."""
    fields: dict[str, Any] = {"B": 3, "NH": 10, "T": 1111, "dtype": "bf16", "causal": False}
    problem = FORWARD.problem(HS=HS, **fields)
    templates = [t for t in builtin_templates("forward") if t.name == "flash_mma"]
    families = choose_families(templates, problem, H200.spec)
    config = {**families["flash_mma"].defaults, "BLOCK_M": 64, "BLOCK_N": 32, "REVERSE": True, "STAGES": 3}
    with open_store(tmp_path / "own.db") as store:
        for size, rows in ((other, 64), (other + 32, 32)):
            won = families["flash_mma"].candidate({**config, "BLOCK_M": rows})
            store.record(H200, FORWARD.problem(HS=size, **fields), won, "hash", took(0.01))
        found = likely(templates, families, Records(store, H200, problem))
    assert found[0] == families["flash_mma"].candidate(config)
    assert families["flash_mma"].candidate({**config, "BLOCK_M": 32}) not in found


def test_a_length_that_tiles_do_not_fit_gets_other_rows(tmp_path: Path) -> None:
    """BERT's 384 queries: all that is known has 256 rows a block, 192 divide them."""
    problem = FORWARD.problem(B=24, NH=16, T=384, HS=64, causal=False)
    templates = [t for t in builtin_templates("forward") if t.name == "flash_wgmma"]
    families = choose_families(templates, problem, H200.spec)
    with left_out([p.problem for p in model_problems()]), open_store(tmp_path / "none.db") as store:
        found = likely(templates, families, Records(store, H200, problem))
    assert {256, 192} <= {candidate.config["BLOCK_M"] for candidate in found}
    assert len(found) == MOST_BUILDS


def test_a_quick_search_evaluates_those_alone_and_a_second_one_nothing(tmp_path: Path) -> None:
    one = family(X=range(100))
    only = [one.candidate({"X": x}) for x in (7, 3, 70, 30)]

    def session(evaluator: FunctionEvaluator) -> Session:
        return Session(
            Families([one]), Records(store, IDENTITY, PROBLEM), evaluator, Clock(Budget(100)), Options(quick=True),
            estimated=False, only=only,
        )  # fmt: skip

    with open_store(tmp_path / "quick.db") as store:
        store.record(IDENTITY, PROBLEM, one.candidate({"X": 50}), "hash", took(30.0))
        evaluator = FunctionEvaluator(lambda c: took(1.0 + abs(int(str(c.config["X"])) - 70)), 2)
        findings = session(evaluator).run()
        assert sorted(int(str(c.config["X"])) for c in set(evaluator.asked)) == [3, 7, 30, 70]
        assert findings.engine.stopped == "trials"
        assert findings.ranked[0].candidate.config == {"X": 70}
        winner = store.winner(PROBLEM, IDENTITY.name)
        assert winner is not None
        assert winner.record.candidate.config == {"X": 70}
        again = FunctionEvaluator(lambda c: took(1.0), 2)
        assert session(again).run().engine.new == 0


def test_a_number_of_trials_beside_it_is_refused() -> None:
    with pytest.raises(UsageError, match="leave out --trials 5, or --quick"):
        Options(trials=5, quick=True).checked()
