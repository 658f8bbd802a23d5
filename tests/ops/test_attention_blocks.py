"""References are computed in blocks on several cores: the sums of all blocks are those of the whole matrix."""

import time
from typing import Any

import numpy as np
import pytest

from autotune.ops import attention_blocks
from autotune.ops.attention_blocks import Block, blocks, do_all, in_order
from autotune.ops.registry import get_op

FORWARD, BACKWARD = get_op("forward"), get_op("backward")
LONG: list[dict[str, Any]] = [
    {"T": 700, "T_kv": 1100, "causal": True},
    {"T": 1100, "T_kv": 700, "causal": True},
    {"T": 513, "T_kv": 1025, "NH": 4, "NH_kv": 2, "causal": False},
]


@pytest.mark.parametrize("case", LONG, ids=str)
def test_blocks_cover_each_visible_pair_once(case: dict[str, Any]) -> None:
    problem = FORWARD.problem(**{"B": 2, "NH": 2, "HS": 8, **case})
    inputs = FORWARD.inputs(problem, 0)
    T, T_kv, NH, NH_kv = (int(problem[name]) for name in ("T", "T_kv", "NH", "NH_kv"))
    visible = np.arange(T_kv)[None, :] <= np.arange(T)[:, None] + (T_kv - T)
    for whole_rows in (False, True):
        seen = np.zeros((2, NH, T, T_kv), int)
        for block in blocks(inputs["q"], inputs["k"], bool(problem["causal"]), whole_rows=whole_rows):
            assert block.kv == block.h // (NH // NH_kv)
            for keys in [slice(0, block.seen)] if whole_rows else block.tiles:
                hidden = block.hidden(keys)
                seen[block.b, block.h, block.rows, keys] += 1 if hidden is None else ~hidden
        assert (seen == (visible if problem["causal"] else np.ones_like(visible))).all()


@pytest.mark.parametrize("case", LONG, ids=str)
def test_gradients_of_blocks_are_those_of_whole_matrices(case: dict[str, Any]) -> None:
    problem = BACKWARD.problem(**{"B": 1, "NH": 2, "HS": 16, "dtype": "fp32", **case})
    inputs = BACKWARD.inputs(problem, 2)
    got, scale = BACKWARD.reference(problem, inputs), float(np.float32(0.25))
    q, k, v, dout, out, lse = (inputs[name].astype(np.float64) for name in ("q", "k", "v", "dout", "out", "lse"))
    group = int(problem["NH"]) // int(problem["NH_kv"])
    k, v = (array.repeat(group, axis=1) for array in (k, v))
    scores = scale * q @ k.swapaxes(2, 3)
    if problem["causal"]:
        T, T_kv = scores.shape[2:]
        scores[..., np.arange(T_kv)[None, :] > np.arange(T)[:, None] + (T_kv - T)] = -np.inf
    with np.errstate(invalid="ignore"):
        p = np.where(np.isneginf(lse)[..., None], 0.0, np.exp(np.minimum(scores - lse[..., None], 0.0)))
    ds = p * (dout @ v.swapaxes(2, 3) - (dout * out).sum(axis=3, keepdims=True))
    expected = {"dq": scale * ds @ k, "dk": scale * ds.swapaxes(2, 3) @ q, "dv": p.swapaxes(2, 3) @ dout}
    for name, gradient in expected.items():
        whole = gradient.reshape(1, -1, group, *gradient.shape[2:]).sum(axis=2) if name != "dq" else gradient
        np.testing.assert_allclose(got[name], whole, rtol=1e-11, atol=1e-12, err_msg=name)


def test_results_come_in_order_whoever_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_blocks, "WORKERS", 3)
    parts = [Block(0, 0, 0, slice(n, n + 1), 2**18, None) for n in range(20)]

    def work(part: Block) -> int:
        time.sleep(0.003 * (part.rows.start % 3 == 0))
        return int(part.rows.start)

    assert list(in_order(work, parts)) == list(range(20))


def test_a_failure_in_a_block_is_raised() -> None:
    def work(part: Block) -> int:
        raise MemoryError(str(part.rows.start))

    parts = [Block(0, 0, 0, slice(n, n + 1), 2**18, None) for n in range(2)]
    with pytest.raises(MemoryError, match=r"^0$"):
        list(in_order(work, parts))
    with pytest.raises(MemoryError, match=r"^0$"):
        do_all(work, parts)


@pytest.mark.parametrize("seen", [1, 2**18])  # all in one thread, and on several
def test_all_blocks_are_done_when_it_returns(seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_blocks, "WORKERS", 3)
    done = np.zeros(20, dtype=int)

    def work(part: Block) -> None:
        time.sleep(0.003 * (part.rows.start % 3 == 0))
        done[part.rows] += 1

    do_all(work, [Block(0, 0, 0, slice(n, n + 1), seen, None) for n in range(20)])
    assert done.tolist() == [1] * 20
