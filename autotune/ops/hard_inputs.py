"""Inputs with teeth: values under which a wrong softmax, mask or sum shows that standard normal ones would hide.

What happens to which unit (a batch's key head) and to which rows a seed decides. Values stay so small that every dtype
holds all that is computed on the way.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

STEEP = (1.0, 8.0, 2.0, 64.0, 0.0, 1.0, 32.0, 16.0)
"""What queries are multiplied with, by stretches of `STRETCH` rows: soft and sharp rows, and rows of equal scores."""

STRETCH = 16
_GROWTH = 120.0  # in scores, from the first key to the last: more than the range of an exponential in fp32
_BELOW = 230.0  # how far below 0 the scores of low rows begin: they end where fp32 still holds no exponential
_LOW_TURN = 3  # of so many stretches one is of low rows
_OUTLIER = 4.0  # times a value
_FAR_QUERY, _FAR_KEY = 32768.0, 32.0  # fp16 holds both; their product times the root of the head size is beyond 2^20
_KINDS = ("growing", "steep", "outliers", "flat", "late")


def sharpen(arrays: Arrays, seed: int) -> Arrays:
    """The same attention inputs (q, k, v and, for gradients, dout; NH and NH_kv heads) with a kind for each unit.

    growing: the maximum of a row moves from key to key until the last; rows lie at different heights, and those of a
    stretch in three far below 0. late: the same in the last eighth of the keys alone. steep: queries times up to 64,
    or 0. outliers: a few large keys, values and gradients. flat: all keys of a row have the same score, and some
    values are 0.
    """
    random = np.random.default_rng(seed)
    changed = {name: array.astype(np.float32) for name, array in arrays.items()}
    B, NH_kv = arrays["k"].shape[:2]
    group = arrays["q"].shape[1] // NH_kv
    order = [*_KINDS[:2], *random.permutation(_KINDS[2:])]  # few units have the kinds that show most
    for unit in range(B * NH_kv):
        b, head = divmod(unit, NH_kv)
        piece = {
            name: array[b, head * group : (head + 1) * group] if name in ("q", "dout") else array[b, head]
            for name, array in changed.items()
        }
        _change(piece, str(order[unit % len(order)]), random)
    return {name: array.astype(arrays[name].dtype) for name, array in changed.items()}


def overshoot(arrays: Arrays) -> Arrays:
    """The same attention inputs; the last query of each head and the last key have a score beyond 2^20, for which fp32
    is too coarse: the query's row is the last value, however a kernel gets it. That key's other scores are large."""
    changed = {name: array.copy() for name, array in arrays.items()}
    group = arrays["q"].shape[1] // arrays["k"].shape[1]
    B, heads, _, HS = arrays["k"].shape
    signs = np.random.default_rng(HS).choice(np.array([-1.0, 1.0]), (B, heads, HS))
    changed["k"][:, :, -1] = _FAR_KEY * signs
    changed["q"][:, :, -1] = _FAR_QUERY * np.repeat(signs, group, axis=1)
    return changed


def sharpen_rows(scores: NDArray[Any], scale: float, seed: int) -> NDArray[Any]:
    """The same scores (B, NH, T, T_kv) of a row softmax with a kind for each matrix: growing, steep, flat, late.

    `scale` is what they are multiplied with: what is above 88 afterwards overflows where no maximum is subtracted.
    """
    random = np.random.default_rng(seed)
    changed = scores.astype(np.float32)
    B, NH, T, T_kv = scores.shape
    ramp = np.linspace(0.0, _GROWTH / scale, T_kv, dtype=np.float32)
    factors = np.array(STEEP, np.float32)[(int(random.integers(len(STEEP))) + np.arange(T) // STRETCH) % len(STEEP)]
    for unit in range(B * NH):
        piece = changed[unit // NH, unit % NH]
        kind = ("growing", "steep", "flat", "late")[unit % 4]
        if kind == "growing":
            piece += ramp
        elif kind == "steep":
            piece *= factors[:, None]
        elif kind == "flat":
            piece[...] = piece[:, :1] + np.float32(_GROWTH / scale)
        else:
            piece += np.maximum(0.0, 8.0 * ramp - 7.0 * ramp[-1])
    return changed.astype(scores.dtype)


def _change(piece: Arrays, kind: str, random: np.random.Generator) -> None:
    """In place: q and dout (group, T, HS), k and v (T_kv, HS), dout and v of HS_v columns."""
    q, k, v = piece["q"], piece["k"], piece["v"]
    T_kv, HS = k.shape
    if kind in ("growing", "late"):
        ramp = np.linspace(0.0, 1.0, T_kv, dtype=np.float32)
        ramp = ramp if kind == "growing" else np.clip(8.0 * ramp - 7.0, 0.0, 1.0)
        direction = np.float32(1.0) / np.float32(np.sqrt(HS)) * random.choice(np.array([-1.0, 1.0], np.float32), HS)
        # q·direction is 8 in every row, so the score of key j grows by 8·length(j)/sqrt(HS).
        q += (8.0 - q @ direction)[..., None] * direction
        k += (_GROWTH * np.sqrt(HS) / 8.0 * ramp)[:, None] * direction
        if HS % 2 == 0:  # else no direction of such signs is at right angles to the other
            below = direction * np.where(np.arange(HS) % 2, np.float32(-1.0), np.float32(1.0))
            low = (int(random.integers(_LOW_TURN)) + np.arange(q.shape[-2]) // STRETCH) % _LOW_TURN == 0
            q += np.where(low, 8.0 - q @ below, 0.0).astype(np.float32)[..., None] * below
            k -= np.float32(_BELOW * np.sqrt(HS) / 8.0) * below
        _steepen(q, (1.0, 1.0, 0.5, 2.0), random)
    elif kind == "steep":
        _steepen(q, STEEP, random)
    elif kind == "outliers":
        for array, times in ((k, 4.0 * _OUTLIER), (v, _OUTLIER), (piece.get("dout"), _OUTLIER)):
            if array is not None:
                rows = random.random(array.shape[:-1]) < 4.0 / array.shape[-2]
                array[rows] *= np.float32(times)
    else:
        k[...] = k[0]
        v[random.random(T_kv) < 0.25] = 0.0


def _steepen(q: NDArray[Any], factors: tuple[float, ...], random: np.random.Generator) -> None:
    start = int(random.integers(len(factors)))
    stretches = start + np.arange(q.shape[-2]) // STRETCH
    q *= np.array(factors, np.float32)[stretches % len(factors)][:, None]
