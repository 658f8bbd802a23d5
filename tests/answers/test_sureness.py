"""How sure an answer is that was timed for another problem, in words."""

import math

import pytest

from autotune.answers.best import sureness
from autotune.core.candidate import Candidate
from autotune.estimate.fit import Expected, Known


@pytest.mark.parametrize(
    ("distance", "alike", "said"),
    [
        (0.0, True, "likely: timed for a problem of the same lengths"),
        (2.0, True, "likely: timed for a problem 2.0 octaves away"),
        (2.1, True, "plausible: timed for a problem 2.1 octaves away"),
        (0.0, False, "plausible: timed for a problem of the same lengths, of another mask, layout or dtype"),
        (4.0, False, "plausible: timed for a problem 4.0 octaves away, of another mask, layout or dtype"),
        (4.1, True, "a guess: timed for a problem 4.1 octaves away"),
        (5.3, False, "a guess: timed for a problem 5.3 octaves away, of another mask, layout or dtype"),
        (math.inf, False, "a guess: nobody kept a time of this configuration"),
    ],
)
def test_trust_falls_with_distance(distance: float, alike: bool, said: str) -> None:
    known = Known(Candidate("family", "hash", (("BLOCK_M", 64),)), ms=1.0)
    assert sureness(Expected(known, 1.0, distance, alike, 1.0)) == said
