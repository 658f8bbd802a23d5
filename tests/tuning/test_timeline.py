"""When what happened in a search."""

import pytest

from autotune.tuning import timeline as module
from autotune.tuning.timeline import Timeline


def test_the_first_time_of_each_event_counts_and_the_earliest_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((12.0, 10.5, 13.0))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(moments))  # type: ignore[attr-defined]
    timeline = Timeline(10.0)
    timeline.mark("verdict")
    timeline.mark("building")
    timeline.mark("verdict")
    assert list(timeline.seconds().items()) == [("building", 0.5), ("verdict", 2.0)]
