"""What hard inputs of attention hold: rows far below 0, NaN in a column, and what is computed again without a mask."""

import numpy as np
import pytest

from autotune.core.values import Value
from autotune.ops.expected import make_inputs
from autotune.ops.op import Arrays, Op
from autotune.ops.registry import get_op

FORWARD, BACKWARD = get_op("forward"), get_op("backward")
UNDERFLOWS = -104.0  # of scores: fp32 holds no exponential of less


def hard(op: Op, seed: int, **fields: Value) -> Arrays:
    given: dict[str, Value] = {"B": 1, "NH": 1, "T": 96, "T_kv": 128, "HS": 64, "dtype": "fp16", **fields}
    problem = op.problem(**given)
    return make_inputs(op, problem, seed, hard=True)


@pytest.mark.parametrize("seed", range(3))
def test_some_rows_have_all_scores_far_below_zero_and_rising(seed: int) -> None:
    """A maximum that begins at 0 underflows there, and one that is compared in another unit is raised too late."""
    problem = FORWARD.problem(B=1, NH=1, T=96, T_kv=128, HS=64, dtype="fp16")
    inputs = FORWARD.hard_inputs(problem, seed)
    q, k = (inputs[name][0, 0].astype(np.float64) for name in ("q", "k"))
    scores = q @ k.T / 8
    low = scores.max(axis=1) < UNDERFLOWS
    assert low.sum() >= 16
    assert not low.all()
    assert np.isfinite(q).all()
    assert np.isfinite(k).all()
    assert (scores[low, -1] > scores[low, 0] + 30).all()


def test_some_rows_are_lost_in_part_when_lanes_add_up_their_maxima() -> None:
    """What is subtracted is the same for all keys of a row: it shows where weights are subnormal numbers alone."""
    problem = FORWARD.problem(B=1, NH=2, T=131, T_kv=257, HS=64, dtype="fp16", causal=False)
    inputs = FORWARD.hard_inputs(problem, 1)
    q, k = (inputs[name][0, 1].astype(np.float64) for name in ("q", "k"))
    scores = q @ k.T / 8 / np.log(2)
    added = sum(scores[:, lane::32].max(axis=1) for lane in range(32))
    assert ((added - scores.max(axis=1) > 126) & (added - scores.max(axis=1) < 145)).sum() >= 3


@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
def test_nan_lies_in_one_column_odd_or_even_at_an_end_or_not(op: Op) -> None:
    """What looks for NaN in a part of the columns alone must miss it."""
    found = set()
    for seed in range(4):
        columns = {
            int(column) for array in hard(op, seed, T=128).values() for column in np.argwhere(np.isnan(array))[:, -1]
        }
        assert len(columns) == 1, (seed, columns)
        found |= columns
    assert found == {0, 31, 32, 63}


def test_without_a_mask_a_query_is_nan_and_another_has_a_score_beyond_fp32s_precision() -> None:
    inputs = hard(FORWARD, 2, causal=False)
    assert np.isnan(inputs["q"][0, 0]).any(axis=1).tolist() == [True] + 95 * [False]
    assert not np.isnan(inputs["k"].astype(np.float32)).any()
    scores = inputs["q"][0, 0].astype(np.float64) @ inputs["k"][0, 0].T.astype(np.float64) / 8
    assert scores[-1, -1] > 2**20 * np.log(2)
    assert scores[-1, :-1].max() < scores[-1, -1] - 1000
    assert np.abs(scores[1:-1]).max() < 2000


def test_few_gradients_alone_are_computed_again_without_a_mask() -> None:
    """Every key is seen by the query whose gradients leave the range."""
    few = hard(BACKWARD, 2, T=3, T_kv=2, causal=False)
    assert few["lse"].max() > 2**20
    np.testing.assert_array_equal(few["out"][0, 0, -1], few["v"][0, 0, -1])
    assert hard(BACKWARD, 2, causal=False)["lse"].max() < 1000
